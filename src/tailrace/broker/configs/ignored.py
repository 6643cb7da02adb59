"""Kafka's broker configs that have no effect here, by family, each with its reason.

A config file that was written for Kafka stays usable: configs without effect are accepted, and listed at the start.
Configs that its author relies on for security, or that name code to run, are refused instead. The first matching family
counts.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from tailrace.broker.configs.keys import InvalidConfig, parts_of


class Family(NamedTuple):
    patterns: tuple[str, ...]  # shell patterns of names
    reason: str
    is_refused: bool = False


def _ignored(patterns: str, reason: str) -> Family:
    return Family(tuple(patterns.split()), reason)


def _refused(patterns: str, reason: str) -> Family:
    return Family(tuple(patterns.split()), reason, is_refused=True)


PROTOCOL_MAP = "listener.security.protocol.map"
_NO_SECURITY = "TLS, SASL and ACLs are not supported yet"

# fmt: off
FAMILIES = (
    _ignored("process.roles controller.* metadata.* broker.heartbeat.* broker.session.* initial.broker.* "
        "controlled.shutdown.* early.start.listeners inter.broker.* security.inter.broker.protocol",
        "one broker needs no quorum, and talks to no other"),
    _ignored(PROTOCOL_MAP,
        "every listener is PLAINTEXT; a map that names TLS or SASL for one is refused"),
    _ignored("replica.* replication.* alter.log.dirs.* num.replica.* leader.imbalance.* auto.leader.rebalance.enable "
        "*.replication.factor *.min.isr follower.fetch.*",
        "there is one replica"),
    _ignored("group.coordinator.rebalance.protocols",
        "classic groups and consumer groups are always supported"),
    _ignored("group.consumer.assignor.offload.enable group.share.assignor.offload.enable",
        "the broker computes assignments on its event loop, at most one per group and assignment interval"),
    _ignored("group.share.initialize.retry.interval.ms share.coordinator.* share.fetch.*",
        "the state of share groups is in one partition: its first record is written with the first assignment, and a "
        "snapshot when the state's changes outweigh it"),
    _ignored("group.streams.*",
        "streams groups are not supported"),
    _ignored("transaction.* add.partitions.to.txn.*",
        "one broker coordinates transactions: their timeouts are exact, and no partition has to be verified"),
    _ignored("remote.*",
        "there is no remote storage"),
    _ignored("offsets.retention.*",
        "committed offsets do not expire by themselves"),
    _ignored("group.coordinator.* offsets.commit.timeout.ms offsets.load.buffer.size offsets.topic.compression.codec",
        "a commit is written at once, and answered when it is on disk"),
    _ignored("queued.max.*",
        "a connection has at most 100 requests in flight, and tailrace.inflight.bytes limits their memory"),
    _ignored("num.*.threads num.recovery.threads.* background.threads *.purgatory.purge.interval.requests",
        "one loop does the work, and a few threads wait for the disk"),
    _ignored("log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms log.dir.failure.timeout.ms",
        "unflushed logs are checked four times a second, start offsets are saved every five seconds, and a disk "
        "failure is noticed at once"),
    _ignored("metric.* metrics.* kafka.metrics.* telemetry.*",
        "metrics are at /metrics, for Prometheus"),
    _ignored("request.timeout.ms socket.connection.setup.*",
        "this broker is no client of other brokers"),
    _ignored("zookeeper.* log.message.format.version",
        "Kafka has removed this config"),
    _ignored("tailrace.awake.processors",
        "the broker no longer keeps idle processors awake: see OPERATING, tuning the host for latency. The next "
        "release refuses this config"),
    _refused("ssl.* sasl.* security.* listener.name.* authorizer.* super.users principal.* delegation.* "
        "connections.max.reauth.ms connection.failed.authentication.*",
        _NO_SECURITY),
    _refused("*.policy.class.name client.quota.callback.class config.providers*",
        "it names Java classes, which cannot run here"),
    _refused("cordoned.log.dirs",
        "there is one directory"),
)
# fmt: on


def family_of(name: str) -> Family | None:
    """Returns the family of a config of Kafka that is not ours; None if there is none."""
    for family in FAMILIES:
        if any(fnmatchcase(name, pattern) for pattern in family.patterns):
            return family
    return None


def check_ignored(name: str, text: str) -> None:
    """Raises InvalidConfig if the value of an ignored config is one that its author relies on."""
    if name != PROTOCOL_MAP:
        return
    for part in parts_of(text):
        listener, _, protocol = (word.strip().upper() for word in part.partition(":"))
        # Kafka's own file maps SSL to SSL, and so on, which has no effect: such listeners are refused.
        if protocol not in ("PLAINTEXT", listener):
            raise InvalidConfig(f"{name} cannot be {part[:100]!r}: {_NO_SECURITY}")
