"""Backups of a data directory, made while a broker works in it.

A backup is the directory as a killed broker would have left it: every log up to a batch that was written whole. So it
holds all that was flushed, and all that was acknowledged, when it began; and a broker opens it as it opens a directory
after a crash. Nobody is asked and nothing is locked: sealed segments do not change, the last one only grows, and what
is replaced or deleted meanwhile is noticed and looked at again (`creating`).

    manifest     what a backup consists of, as one JSON document
    store        the directory of backups: bytes by their SHA-256, manifests, what a killed run had copied
    source       a log looked at from outside, and where it is cut
    copying      bytes from one file to another, in pieces
    log_copy     one log on its way into the store
    creating     the order of it all
    view         a backup as if it were the data directory: for those who check and those who restore
    verifying, restoring
"""
