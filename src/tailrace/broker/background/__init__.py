"""Background tasks: work that no request waits for. The broker calls each task's `tick` some times a second.

Read in this order:

    checkpoints.py   flushes after a while, checkpoints of logs, saved recovery points
    journal.py       whether there is a journal
    retention.py     carries out retention by age and size (`log/retention` decides), and all other deletions of records
    disk_budget.py   deletes the oldest segments while all logs exceed the budget
    disk_reserve.py  refuses appends while the disk is almost full
    compaction.py    which log is compacted next
    scrubber.py      reads sealed segments to find corruption
    removals.py      deletes the files of removed logs
"""
