"""The state log of share groups, `__share_group_state`. What is persisted of a share partition is its last snapshot
there, and the updates behind it.

Read in this order:

    records.py         its records, in Kafka's own format
    conversion.py      updates of a share partition as such records
    log.py             appends records to it, reads it at the start, and cuts it
    needed_records.py  which of its records are still needed; pure
    snapshots.py       writes states anew, and has the log cut
    loaded_states.py   what a replay of it gives
    loading.py         the start: reads it, and hands the states over
"""
