"""One partition's log on disk, and many of them in a data directory. Plain synchronous code: no clock, no threads.

Folders and modules are layers, from bottom to top: each imports only those above it in this list (import-linter checks
it).

    disk/         the interface to the disk, and the operating system's files behind it
    layout/       names on disk, configs, offsets, errors, damaged ranges: no input or output
    files/        the formats of all files beside the batches: indexes, checksums, checkpoints, the journal's file
    scan/         reading a file of batches that may be torn or corrupt
    segment/      one file of batches with its indexes, and which of its bytes may be served
    state/        what a log remembers of its producers

    dirty         the writes of a log that are not on disk yet
    view          what readers see of a log at one moment
    time_search   finds records by their timestamps
    reader        the half of a log that any thread may use: reading from an offset
    validation    the checks that a batch must pass before it is appended
    roll          decides when a log begins a new segment
    jobs          flushes and checkpoints of one log, as jobs for any thread
    appender      the half of a log that appends: check, stamp, write, roll
    log           the whole log: flush, checkpoint, delete, truncate. Its head lists the surface that `broker/` uses

    flush/        which log is flushed next, and the journal
    retention     decides which segments need not be kept; `broker/background` carries it out
    scrub         reads sealed segments again to find bit rot
    compaction/   keeps the newest value of each key
    recovery/     opens a log after a stop or a crash
    directory/    the data directory: all logs, their offset checkpoints, removal, the lock
    tools/        offline tools: verify, repair, dump. Used by `cli/log` and `backup/`, never by the broker

Read log, appender, reader and segment/segment first, then flush/queue, recovery/recovery and directory/directory.
"""
