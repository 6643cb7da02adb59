"""Pipelines: one function from frame to frame, which runs live, over history, and on rows in a test.

    topic ─► source ─► decoder ─► your function ─► sink
                          └─► corrupt messages: a column, a sink of their own, an error, or nowhere

Read in this order:

    pipeline       the decorator, and the object it makes: what is read, decoded, done and written
    decoders       from the bytes of messages to columns: Json, Text, Raw
    sinks          where rows go, and what each guarantees: Topic, Parquet, Files, Console, Call
    outputs        whether an output directory and a checkpoint belong together
    stores         directories on any store that Spark writes to
    run            `.run`: the live query, its restarts, its end
    query_start    starts the queries of a process one after another
    progress       what Spark reports of a finished batch, as one small dict
    failures       why a query failed, and whether a restart can help
    state/         what a pipeline keeps on disk
    replay/        `.replay`: a closed range as a batch, or the recorded batches of the live run again
    sample_run     `.test`: the pipeline over rows that a test has made
    session/       the Spark session, and Java
    pipeline_file  the pipelines that a Python file defines
    shipping       a zip of tailrace for clusters that do not have it
"""
