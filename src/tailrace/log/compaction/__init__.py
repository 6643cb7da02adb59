"""Compaction: of each key the newest value stays, at its offset.

keys         which offset is the newest of a key, in bounded memory
filtering    what stays of one batch (pure)
cleaning     one pass over a log's segments: new files beside the old ones
messages     what the broker tells a pass, and hears of it
child        the process that a pass runs in: `python -m tailrace.log.compaction.child`
passes       that process as the broker sees it
planning     which part of a log may be compacted, and how much of that is new
swapping     the new files take the place of the old ones, at once or not at all
jobs         the steps of a pass that wait for a disk or for the child

docs/COMPACTION.md tells how they work together.
"""
