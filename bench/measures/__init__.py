"""The measures of `python -m bench`: each function takes a Bench and returns figures. `bench/table.py` names them all.

append          a log's append, against bare writes, and with a long history
recovery        the scan of a log after a crash
clean_open      opening a directory of many partitions after a clean stop
flush           appends that must be on disk, alone and together
preallocation   ways to reserve the blocks of a segment
broker          the broker as a process: produce, consume, acknowledgements, start
journal         acknowledgements with `acks=all` over many partitions, with and without the journal
consumers       consumers that wait for an append, and one that reads cold history
groups          heartbeats and rebalances of many groups and of a large one
history         a broker with twenty gigabytes of history
compaction      compaction beside a producer
growth          how cost grows with partitions, connections, history and message size
spark           the Spark source and sink, against Spark's own Kafka connector
"""
