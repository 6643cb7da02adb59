"""What tests of queues share: settings for brokers that make a share group prompt, Kafka's names for both brokers."""

LOCK_MS = 2000  # of groups in tests; a broker may refuse less than 1,000

SHARE_SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "10000",
    "group.share.assignment.interval.ms": "0",
}
