"""Share groups, used by queues: membership, acquired records and their acknowledgement, and what operators see.

    consumer = ShareConsumer(cluster, "thumbnails", ["images"])
    for delivery in consumer.poll(10, wait_s=1.0):
        consumer.acknowledge(delivery, Outcome.ACCEPT)
    consumer.close()

A consumer is one member of its group. It has one session with each broker that leads a partition, whatever the number
of workers behind it, and it works only inside `poll`, by the thread that calls it. Other threads may call `wake`.

Read in this order; a module imports only those before it:

    acknowledgements  outcomes of records, and the batches of a request that carry them
    deliveries        the acquired records in a response
    member            membership by heartbeats
    session           a share session with one broker: its connection, its epoch and the requests in flight
    placement         which broker leads each assigned partition
    leases            the records that a consumer holds
    holdings          what a consumer holds, and what becomes of it
    consumer          puts them together
    groups            share groups as their coordinator describes them
    offsets           where the partitions of a group start, and their backlog; read and changed from outside
"""
