"""Compaction: of each key the newest value stays, at its offset.

    keys            which offset is the newest of a key, in bounded memory
    filter          which records of one batch stay (pure)
    cleaner         one pass over a log's segments: new files beside the old ones
    messages        the messages between the broker and a pass
    child           the process that a pass runs in: `python -m tailrace.log.compaction.child`
    child_process   that process as the broker sees it
    plan            which part of a log may be compacted, and how much of that is new
    jobs            the steps of a pass that wait for a disk or for the child

The new files replace the old ones by `log/files/swap_file`. docs/COMPACTION.md tells how they work together.
"""
