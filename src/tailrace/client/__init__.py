"""Private: the few requests that we make ourselves on raw batches, for the Spark source and for measurements.

Blocking sockets and no threads of its own, so that it can be used where a process belongs to somebody else, as Spark's
workers do. It speaks to any Kafka. Users have Kafka's own clients; nothing here is promised to them.

    options = ClientOptions.from_properties({"bootstrap.servers": "localhost:9092"})   # small, and can be pickled
    cluster = cluster_for(options)                                                     # kept for as long as the process
    for chunk in PartitionReader(cluster, "orders", 0, start=0, end=1000): ...         # whole batches, never copied
"""
