"""Queues: share groups (KIP-932), whose members share partitions message by message.

The state of a share partition, pure:

    states.py               states of records, ranges of offsets, decisions and updates
    share_partition.py      one partition of one share group: its state table, acquisition, and the decisions
    settings.py             the configs of a group that it needs
    pages.py                the state of each record, in pages
    leases.py               which member holds which records, and until when
    parking.py              records that wait for their time
    delays.py               until when, where a member has chosen it
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
    coordinator.py          all of them: decides, appends, replays, responds when flushed
    sessions.py, starts.py, offsets.py, acknowledgements.py
    fetches.py, reads.py, batches.py
    outcomes.py, facts.py   what is counted and shown

Records that are given up:

    dead_letter_records.py  a dead letter as a record; pure
    dead_letter_jobs.py     makes them, and finds those that were written before
    dead_letters.py         writes each of them once
"""
