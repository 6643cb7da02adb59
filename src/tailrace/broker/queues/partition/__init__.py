"""The state of a share partition: what its members hold, and what is finished. Pure: no log, no clock, no broker.

Read in this order:

    states.py           states of records, ranges of offsets, decisions and updates
    share_partition.py  its state table, acquisition, and the decisions
    partition_state.py  what is known of its records: persisted, held, waiting
    settings.py         the configs of a group that it needs
    pages.py            the state of each record, in pages
    leases.py           which member holds which records, and until when
    parking.py          records that wait for their time
    key_order.py        records that wait for others with the same key
    acquisition.py      chooses the records that one acquisition takes
    drafts.py           collects the changes of one decision
"""
