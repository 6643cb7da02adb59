"""Queues: share groups (KIP-932), whose members share partitions message by message.

The state of a share partition, pure:

    states.py               states of records, ranges of offsets, decisions and updates
    share_partition.py      one partition of one share group: its state table, acquisition, and the decisions
    partition_state.py      what is known of its records: persisted, held, waiting
    settings.py             the configs of a group that it needs
    pages.py                the state of each record, in pages
    leases.py               which member holds which records, and until when
    parking.py              records that wait for their time
    key_order.py            records that wait for others with the same key
    acquisition.py          chooses the records that one acquisition takes
    drafts.py               collects the changes of one decision

The state log:

    records.py              the records of the state log, `__share_group_state`, in Kafka's own format
    log.py                  appends records to it, reads it at the start, and cuts it
    loaded_states.py        what a replay of it gives
    needed_records.py       which of its records are still needed
    snapshots.py            writes states anew

Share groups at work:

    queue_partition.py      a share partition of the running broker
    group_queues.py         all of them, by group and by partition
    loading.py              the start: reads the state log, and hands the states over
    coordinator.py          decides, appends, replays, responds when flushed
    starts.py, offsets.py   where a group begins, and where an operator puts it
    sessions.py             share sessions, which end with their connections
    acknowledgements.py     what a request says of records
    batches.py, reads.py    finds records in the log, by the headers of batches
    fetches.py              one ShareFetch: looks, waits, acquires, responds
    outcomes.py, facts.py   what is counted and shown

Records for later, that expire, or in order:

    inspection.py           what records say in headers and keys; pure
    screening.py            which of the records that were found may be delivered
    deliveries.py           carries out what that says, and reads what it needs in a job

Records that are given up:

    dead_letter_records.py  a dead letter as a record; pure
    dead_letter_jobs.py     makes them, and finds those that were written before
    dead_letters.py         writes each of them once
"""
