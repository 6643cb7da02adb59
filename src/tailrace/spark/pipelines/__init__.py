"""Pipelines: one function from frame to frame, which runs live, over history, and on rows in a test.

    topic ─► source ─► decoder ─► your function ─► sink
                          └─► corrupt messages: a column, a sink of their own, an error, or nowhere

The modules:

    pipeline   the decorator and what it makes: what is read, decoded, done and written
    decoders   from the bytes of messages to columns: Json, Text, Raw
    sinks      where rows go, and what each promises: Topic, Parquet, Files, Console, Call
    outputs    whether an output directory and a checkpoint belong together
    stores     directories on any store that Spark writes to
    running    `.run`: the query, its restarts, its end
    replaying  `.replay`: the same over a closed range, or over the batches that live had
    extent     what a closed range has, and what is missing from it
    exact      the batches of live, run again and compared
    repeating  whether a query would say the same again
    observing  rows counted while they pass
    places     where a replay may write
    testing    `.test`: the same over some rows
    state      what a pipeline keeps on disk: checkpoint, losses, history, and a lock
    history    the batches that were finished, beyond those that Spark remembers
    progress   what Spark says of a finished batch, in few words
    failures   why a query failed, and whether that may pass
    finding    the pipelines of a Python file
    shipping   what a cluster needs that does not have tailrace
    session    a Spark session with the settings that this needs
    java       which Java there is
    launching  Java, started for Spark
    archive    Spark's classes, kept for a quicker start
"""
