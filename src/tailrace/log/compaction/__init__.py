"""Compaction: keeps the newest value of each key, at its offset.

    keys            the newest offset of each key, in bounded memory
    filter          decides which records of a batch are kept (pure)
    cleaner         one pass over a log's segments: writes new files beside the old ones
    messages        the messages between the broker and a pass
    child           the process that a pass runs in: `python -m tailrace.log.compaction.child`
    child_process   that process as the broker sees it
    plan            which part of a log may be compacted, and how much of it is new
    jobs            the steps of a pass that wait for a disk or for the child process

The new files replace the old ones by `log/files/swap_file`. docs/COMPACTION.md describes how the modules work together.
"""
