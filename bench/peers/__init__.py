"""Side by side with Apache Kafka, and with NATS, Redis and RabbitMQ: the same work by foreign clients, in turns.

    python -m bench.peers              all measures, in at most half an hour
    python -m bench.peers --quick      the same with little of everything, in a few minutes: to see that it works
    FULL=1 python -m bench.peers       the whole matrix of clients, sizes, partitions and codecs, in two hours
    python -m bench.peers --only ack   one of them; may be given several times

Needs scripts/fetch-kafka and scripts/fetch-peers. Writes `peers-DATE-TIME.json` (the schema of `bench/__init__.py`),
`.md` and pictures to bench/results, or to where `--out` says. docs/BENCHMARKS.md says what the lines mean.

    tools        the clients that load a broker, as processes: Kafka's own tools, kcat, confluent-kafka
    kafka        Apache Kafka as a process
    first_ack    waits for the first acknowledged message of a broker
    session      the brokers of a run
    throughput   produce and consume
    latency      acknowledgements and end to end
    catch_up     a consumer of cold history beside a producer
    crowd        many producers, many consumers
    footprint    memory, start, many partitions
    others       NATS JetStream, Redis Streams, RabbitMQ
    queues       queues beside RabbitMQ, and beside Kafka's share groups
    plot         ratios as SVG
    markdown     the report
"""
