"""Queues: share groups (KIP-932), whose members share partitions message by message.

Read in this order:

    names.py            what share partitions go by
    partition/          one partition of one share group: its state table, acquisition, and the decisions; pure
    state_log/          the state log, `__share_group_state`: its records, its start, its snapshots
    outcomes.py         what became of records: counters
    queue_partition.py  a share partition of the running broker, and the fetches that wait for it
    group_queues.py     all of them, by group and by partition
    starts.py           where a group begins
    delivery/           ShareFetch and ShareAcknowledge: sessions, reads, what may be delivered, acknowledgements
    dead_letters/       records that are given up
    coordinator.py      all share groups: decides, appends, replays, responds when flushed
    offsets.py          moves groups, for an operator
    facts.py            what is shown of share partitions
"""
