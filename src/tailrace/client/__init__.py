"""A private, blocking Kafka client: the few requests that we make ourselves, on raw batches (Spark, benchmarks) and
where confluent-kafka has no call (client quotas, configs of all brokers, transactions, share groups).

It starts no threads, so that it works inside processes that are not ours, such as Spark's workers, and it talks to any
Kafka. It is no public API: users have Kafka's own clients.

    options = ClientOptions.from_properties({"bootstrap.servers": "localhost:9092"})   # small, and can be pickled
    cluster = cluster_for(options)                                                     # kept for as long as the process
    for chunk in PartitionReader(cluster, "orders", 0, start=0, end=1000): ...         # whole batches, never copied

Read in this order; a module imports only those before it, and the folders are layers:

    errors          one family of exceptions, each with what to do
    options         the settings of a client, as a value that can be pickled
    properties      Kafka's property names, parsed into `options`
    net/            connections to one broker: sockets, TLS, SASL, requests and responses, a pool
    cluster/        metadata, leaders and coordinators; retries
    admin/          configs, quotas, transactions and sizes on disk
    offsets         ListOffsets, for many partitions at once
    batches         the whole batches in a Fetch response, checked by their headers
    fetch_requests  Fetch requests without a session
    fetch           a range of one partition as whole batches, with one fetch ahead
    long_poll       waits until a partition has more records
    fetch_once      what a partition has from an offset on, without waiting
    groups          committed offsets of consumer groups, read and changed from outside
    produce         an idempotent producer of prepared batches
    transactions    a transactional producer
    share/          share groups: records acquired one by one, and acknowledged
"""
