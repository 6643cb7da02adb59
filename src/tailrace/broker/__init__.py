"""The broker: topics, logs, groups, quotas and the handlers of all Kafka APIs, without event loop, socket or clock.

The server gives it requests and the time, runs its jobs in threads, and sends its responses. Read in this order, from
bottom to top; a folder imports only those above it in this list:

    configs/       config keys, their values and where these come from
    core/          topics, partitions, delayed responses, error codes: what all other folders use
    quotas/        client quotas, and the throttle times that they lead to
    metadata/      the metadata log, and the state of the cluster that it describes
    groups/        consumer groups, their log and their committed offsets
    backlog/       records that groups have not read: policies, holds, the loss ledger
    transactions/  transactional ids, and the ends of their transactions
    produce/       appends for clients
    fetch/         reads for clients
    queues/        share groups: records that are handed out one by one
    background/    work that no request waits for: checkpoints, retention, compaction, scrubbing, disk space
    broker.py      the broker: owns all of the above
    apis/          one module for each API key
    fastpath/      Produce and Fetch without decoding; without this folder everything is slower, and still right
    startup.py     opens a broker over a data directory
"""
