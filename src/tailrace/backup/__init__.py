"""Backups of a data directory, taken while a broker works in it.

A backup is the directory as a killed broker would have left it: every log up to a batch that was written whole. It
holds everything that was flushed or acknowledged when the backup began, and a broker opens it as it opens a directory
after a crash. No broker takes part and nothing is locked: sealed segments do not change, the last one only grows, and
a segment that is replaced or deleted meanwhile is noticed and read again (`create`).

Read in this order:

    manifest   the content of a backup: logs, segments and file hashes, as one JSON document
    store      the directory of backups: objects by SHA-256, manifests, leftovers of killed runs
    copy       bytes from one file to another, hashed, at a bounded rate
    source     a log seen from outside, and where it can be truncated
    log_copy   one log on its way into the store
    decisions  where transactions allow a log to end
    create     a whole backup, in the order that keeps it consistent
    view       a backup presented as a data directory, for `verify` and `restore`
    verify     checks every object, and every log as `tailrace log verify` does
    restore    a data directory from a backup
"""
