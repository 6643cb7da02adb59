"""A message broker that speaks Kafka's protocol. The log is the only storage; everything else is a reader of it.

A package imports only those above it in this list, and none beside it on its line (import-linter checks it):

    util/                small helpers without state
    protocol/            Kafka's wire format: messages, frames, primitives
    records/             one batch of records as bytes
    facts/               the formats of the topics that the broker publishes
    log/                 one partition's log on disk, and the data directory with all of them
    client/              a private Kafka client, for the monitor, for Spark and for what verbs cannot do otherwise
    broker/              topics, groups and the handlers of all APIs: decisions, without socket or clock
    backup/              copies of a data directory
    server/              the broker's process: sockets, threads, the clock, helper processes
    spark/               a data source and pipelines for Spark
    monitor/             lag, losses and alerts of any Kafka
    gateway/             topics of any Kafka over HTTP
    cli/                 the `tailrace` command
    testing/             brokers in tests, and files that fail; users' tests import it

Where to look:

- who talks to sockets: server/net, the helper process of server/handoff, and client/net as a client
- the journal: log/flush/journal, its file in log/files/journal_file; server/flusher decides when it is written
- retention: decided in log/retention, carried out in broker/background/retention
- a new API: its messages in protocol/messages, its handler in broker/apis, one module each
- a new config: broker/configs; a new verb: a folder in cli/
- tools without a broker: log/tools and backup/, as `tailrace log` and `tailrace backup`
"""

__version__ = "0.1.0"
