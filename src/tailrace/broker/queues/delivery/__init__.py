"""Requests of members: what they fetch, and what they say of it.

Read in this order:

    sessions.py          share sessions, which end with their connections
    acknowledgements.py  what a request says of records
    batches.py           the batches of a slice, by their headers alone
    reads.py             finds records in the log, and what has to be read for that
    inspection.py        what records say in headers and keys; pure
    screening.py         which of the records that were found may be delivered: their delay, expiry and order
    deliveries.py        carries out what that says, and reads what it needs in a job
    fetches.py           one ShareFetch: looks, waits, acquires, responds
"""
