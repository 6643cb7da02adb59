"""Topics and queues over HTTP, for any language and without a client library. A client of any Kafka: imports no broker.

Read in this order; a folder or module imports only those above it in this list:

    settings      the configs `tailrace.http.*`
    metrics       the figures for Prometheus
    http/         what is HTTP: connections, and the server
    kafka/        what is Kafka: blocking calls of the private client, in threads
    idempotency/  requests with an Idempotency-Key: written once
    errors        what clients are told about an error of Kafka's
    topics/       /v1/topics: write, read, and see which there are
    queues/       /v1/queues: lease messages, and say what became of them
    groups        /v1/groups
    description   /v1/openapi.json and /docs
    health        /healthz, /readyz and /metrics
    service       the app, its clients and its server put together
    process       runs the service as a child process of the broker
    alone         runs it in front of any Kafka: what `tailrace gateway` does
"""
