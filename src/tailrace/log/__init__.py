"""One partition's log on disk, and many of them in a data directory. Plain synchronous code: no clock, no threads.

Read in this order:

    files, page_cache            the seam to the disk, and what it has in memory
    scan, search, walk           a file of batches that may be torn or rotten
    index, transaction_index, sums, derived     what is derived from it, and rebuilt when lost
    checking, damage, ranges     what may be served
    recorded_gaps                what cannot be, and was given up
    segment, slices              one file with all of that; a piece of it to send
    offsets, epochs, partition_metadata, producer_state, producer_snapshot      what a log remembers beside bytes
    reading, appending, log      the log: what anyone may do, what its owner does
    unflushed, jobs, flush       what waits for a disk, and for whom
    journal, committing          little of many logs, brought to disk at once
    retention                    what need not be kept
    replay, tail, cutting, restoring, segment_walk, recovery           after a stop or a crash
    names, checkpoints, admission, directory_state, saved_offsets, removal, directory      many logs in a directory
    scrubbing                    reading again what was sealed long ago
    store                        what the layers above see of all this
    places, survey, audit, verify               looking at a log without opening it
    healing, repair, repair_steps               and what can be done about what was found
"""
