"""Properties of Kafka's consumers (`kafka.…`) that this source takes without effect, or refuses with the reason.

A property that is in neither table goes to the client, which refuses what it does not know.
"""

from collections.abc import Mapping

# About members of a group, the consumer's own buffers and threads, metrics, and how to find brokers again. This source
# is no member of a group, reads from leaders in requests of its own, and reports what it does to Spark.
WITHOUT_EFFECT = frozenset(
    {
        *("max.poll.records", "max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms"),
        *("group.instance.id", "group.protocol", "group.remote.assignor", "partition.assignment.strategy"),
        *("auto.commit.interval.ms", "internal.leave.group.on.close", "exclude.internal.topics"),
        *("allow.auto.create.topics", "client.rack", "client.dns.lookup", "connections.max.idle.ms"),
        *("send.buffer.bytes", "receive.buffer.bytes", "reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        *("socket.connection.setup.timeout.max.ms", "metadata.recovery.strategy"),
        *("metadata.recovery.rebootstrap.trigger.ms", "enable.metrics.push", "auto.include.jmx.reporter"),
        *("metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        "security.providers",
    }
)
REFUSED = {
    "group.id": "the option group names the consumer group, without `kafka.`",
    "auto.offset.reset": "startingOffsets says where a new query begins, and onDataLoss what happens to lost records",
    "enable.auto.commit": "the checkpoint says what is read; with the option group, the group's offsets follow it",
    "interceptor.classes": "there are no Java classes here",
    "key.deserializer": "keys are bytes; cast the column",
    "value.deserializer": "values are bytes; cast the column",
}


def with_effect(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are left for the client."""
    return {name: value for name, value in properties.items() if name not in WITHOUT_EFFECT}


def refusal(properties: Mapping[str, str]) -> str | None:
    """Returns the reason why one of the properties cannot be set, or None if all can."""
    return next((f"kafka.{name} cannot be set: {why}" for name, why in REFUSED.items() if name in properties), None)
