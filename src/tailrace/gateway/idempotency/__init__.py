"""Exactly-once writes by Idempotency-Key: a request that is repeated is answered as it was, and writes nothing.

The messages of a request and a record about its key are written in one transaction. The record is in a topic of its
own (`facts/idempotency`), which is read at a start, so a key is known over restarts.

Why no key is written twice: all writes go through one transactional id. A gateway that takes it over aborts an open
transaction of the gateway before it, and then reads the topic to its end: so it knows all keys that were written, and
no other gateway can write one until it has taken the id over, which fences this gateway. After each
error whose outcome is unknown, such as a commit whose response is lost, the gateway takes the id over again, and looks.
Several gateways of one cluster are right, too, but take turns.

table     where the record of each key is, by a hash of the key; pure
key_log   the topic: created, read
store     one transaction for many requests; used in a thread
keys      what routes use: one request at a time for each key
"""
