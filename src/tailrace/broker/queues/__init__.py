"""Queues: share groups (KIP-932), whose members share partitions message by message.

Read in this order:

    states.py           states of records, ranges of offsets, decisions and updates
    share_partition.py  one partition of one share group: its state table, acquisition, and the decisions; pure
    settings.py         the configs of a group that it needs
    pages.py            the state of each record, in pages
    leases.py           which member holds which records, and until when
    parking.py          records that wait for their time
    acquisition.py      chooses the records that one acquisition takes
    drafts.py           collects the changes of one decision
    records.py          the records of the state log, `__share_group_state`, in Kafka's own format
"""
