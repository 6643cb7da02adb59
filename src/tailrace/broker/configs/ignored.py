"""Kafka's broker configs that have no effect here, by family, each with its reason.

A file that was written for Kafka goes on working: what is merely without effect is taken, and said at the start. What
its author counts on for safety, or what names code to run, is refused instead. The first family that fits counts.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from tailrace.broker.configs.keys import InvalidConfig, parts_of


class Family(NamedTuple):
    patterns: tuple[str, ...]  # of names, in the manner of shells
    reason: str
    is_refused: bool = False


def _ignored(patterns: str, reason: str) -> Family:
    return Family(tuple(patterns.split()), reason)


def _refused(patterns: str, reason: str) -> Family:
    return Family(tuple(patterns.split()), reason, is_refused=True)


PROTOCOL_MAP = "listener.security.protocol.map"
_NO_SECURITY = "there is no TLS, SASL or ACL here yet, and it must not seem so"

# fmt: off
FAMILIES = (
    _ignored("process.roles controller.* metadata.* broker.heartbeat.* broker.session.* initial.broker.* "
        "controlled.shutdown.* early.start.listeners inter.broker.* security.inter.broker.protocol",
        "one broker needs no quorum, and talks to no other"),
    _ignored(PROTOCOL_MAP,
        "every listener is PLAINTEXT; a map that makes one seem to be TLS or SASL is refused"),
    _ignored("replica.* replication.* alter.log.dirs.* num.replica.* leader.imbalance.* auto.leader.rebalance.enable "
        "*.replication.factor *.min.isr follower.fetch.*",
        "there is one replica"),
    _ignored("group.consumer.* group.share.* group.streams.* group.coordinator.rebalance.protocols share.*",
        "groups of the newer kinds are not there yet"),
    _ignored("transaction.* transactional.* add.partitions.to.txn.*",
        "transactions are not there yet"),
    _ignored("remote.*",
        "there is no remote storage"),
    _ignored("offsets.retention.*",
        "committed offsets do not expire by themselves"),
    _ignored("group.coordinator.* offsets.commit.timeout.ms offsets.load.buffer.size offsets.topic.compression.codec",
        "a commit is written at once, and answered when it is on disk"),
    _ignored("queued.max.*",
        "a connection has 100 requests under way at most, and tailrace.inflight.bytes bounds those that arrive"),
    _ignored("num.*.threads num.recovery.threads.* background.threads *.purgatory.purge.interval.requests",
        "one loop does the work, and a few threads wait for the disk"),
    _ignored("log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms log.dir.failure.timeout.ms",
        "what is unflushed is looked at four times a second, start offsets are saved every five seconds, and a disk "
        "that fails is noticed at once"),
    _ignored("metric.* metrics.* kafka.metrics.* telemetry.*",
        "metrics are at /metrics, for Prometheus"),
    _ignored("request.timeout.ms socket.connection.setup.*",
        "this broker asks nobody"),
    _ignored("zookeeper.* log.message.format.version",
        "Kafka has no such config any more"),
    _ignored("tailrace.awake.processors",
        "the broker no longer keeps idle processors awake: see OPERATING, tuning the host for latency. The next "
        "release refuses this config"),
    _refused("ssl.* sasl.* security.* listener.name.* authorizer.* super.users principal.* delegation.* "
        "connections.max.reauth.ms connection.failed.authentication.*",
        _NO_SECURITY),
    _refused("*.policy.class.name client.quota.callback.class config.providers*",
        "it names Java classes, which are not run here"),
    _refused("cordoned.log.dirs",
        "there is one directory"),
)
# fmt: on


def family_of(name: str) -> Family | None:
    """The family of a config that is Kafka's and not ours; None where it is neither."""
    for family in FAMILIES:
        if any(fnmatchcase(name, pattern) for pattern in family.patterns):
            return family
    return None


def check_ignored(name: str, text: str) -> None:
    """Raises InvalidConfig where one that is otherwise ignored says what its author counts on."""
    if name != PROTOCOL_MAP:
        return
    for part in parts_of(text):
        listener, _, protocol = (word.strip().upper() for word in part.partition(":"))
        # Kafka's own file maps SSL to SSL, and so on: listeners of those names there cannot be.
        if protocol not in ("PLAINTEXT", listener):
            raise InvalidConfig(f"{name} cannot be {part[:100]!r}: {_NO_SECURITY}")
