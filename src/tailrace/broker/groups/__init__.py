"""Consumer groups: members, assignments and committed offsets.

Read in this order:

    consumer_records.py  the records of consumer groups in the log of groups, in Kafka's own formats
    share_records.py     those of share groups
    record_kinds.py      the kinds of both by number
    records.py           all records of the log of groups
    timers.py            deadlines, and the clock they go by
    pending_offsets.py   offsets that were committed in a transaction, until its marker
    offsets.py           committed offsets
    group.py             what the coordinator needs of a group, of whatever kind
    descriptions.py      responses that describe groups
    epochs.py            the changes that one event makes to a group with epochs
    classic/             one group of the classic protocol
    consumer/            one group of the consumer protocol (KIP-848)
    share/               one share group (KIP-932)
    table.py             all groups by name: made, replayed, changed from one kind to another
    log.py               the log of groups, `__consumer_offsets`: appended, flushed, and read at the start
    coordinator.py       all groups: decide, append, replay, respond when flushed

The log of groups is the truth, and everything in memory is a replay of it. Only delayed responses and deadlines are not
in the log: after a restart members continue with the generation they have.
"""
