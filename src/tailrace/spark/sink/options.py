"""The options of a write: those of Spark's `kafka` format and of Kafka's producers, and `delivery`.

A property of producers (`kafka.…`) is used, has no effect here because of how this sink works, or is refused with the
reason: one that is not known at all is refused by the client.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from tailrace.client.options import ClientOptions, Isolation
from tailrace.records.compression import Codec
from tailrace.spark.source.consumer_properties import with_effect
from tailrace.spark.source.options import NAMES, SINK_NAMES, BadOptions, check_names, properties_in

Value = TypeVar("Value")

BATCH_BYTES_MAX = 1_000_000  # what a broker takes unless it was told otherwise is a little more
TRANSACTION_TIMEOUT_MS = 900_000  # the most that brokers allow unless they were told otherwise

# A task sends what it has in large batches as soon as it has it, and waits for its answers as long as retries take.
WITHOUT_EFFECT = frozenset(
    {
        *("batch.size", "linger.ms", "buffer.memory", "max.block.ms", "retries"),
        *("max.in.flight.requests.per.connection", "send.buffer.bytes", "receive.buffer.bytes"),
        *("connections.max.idle.ms", "partitioner.availability.timeout.ms"),
        *("partitioner.adaptive.partitioning.enable", "metadata.max.idle.ms"),
    }
)
REFUSED = {
    "transactional.id": "it is made from the query's id and the task's number",
    "partitioner.class": "the column partition says where a row goes, or else its key does, by murmur2",
    "partitioner.ignore.keys": "the column partition says where a row goes, or else its key does, by murmur2",
    "isolation.level": "a sink reads nothing but its own markers, of transactions that are committed",
    "interceptor.classes": "there are no Java classes here",
    "key.serializer": "keys are text or bytes; cast them before",
    "value.serializer": "values are text or bytes; cast them before",
}


class Delivery(StrEnum):
    AUTO = "auto"
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    client: ClientOptions
    topic: str | None = None
    delivery: Delivery = Delivery.AUTO
    codec: Codec = Codec.NONE
    batch_bytes_max: int = BATCH_BYTES_MAX
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises BadOptions, and BadOption of the client."""
    given = {name.lower(): value for name, value in options.items()}
    properties = properties_in(given)
    check_names(given, SINK_NAMES, NAMES, "reading")
    if given.get("topic", "topic").strip() == "":
        raise BadOptions("option topic is empty: without it, the column topic says where each row goes")
    codec = _taken(properties, "compression.type", _codec, Codec.NONE)
    batch_bytes_max = _taken(properties, "max.request.size", int, BATCH_BYTES_MAX)
    timeout_ms = _taken(properties, "transaction.timeout.ms", int, TRANSACTION_TIMEOUT_MS)
    delivery = _delivery(given)
    return SinkOptions(
        client=_client(properties),
        topic=given.get("topic"),
        delivery=delivery,
        codec=codec,
        batch_bytes_max=min(batch_bytes_max, BATCH_BYTES_MAX),
        transaction_timeout_ms=timeout_ms,
    )


def _client(properties: dict[str, str]) -> ClientOptions:
    """Markers are read when the transactions that write them are over."""
    for name, why in REFUSED.items():
        if name in properties:
            raise BadOptions(f"kafka.{name} cannot be set: {why}")
    if properties.pop("acks", "all") not in ("all", "-1"):
        raise BadOptions("kafka.acks is all here: what is written is written when the brokers say so")
    if properties.pop("enable.idempotence", "true").lower() != "true":
        raise BadOptions("kafka.enable.idempotence is true here: a batch that is sent again is written once")
    if "delivery.timeout.ms" in properties:
        properties.setdefault("default.api.timeout.ms", properties.pop("delivery.timeout.ms"))
    left = {name: value for name, value in with_effect(properties).items() if name not in WITHOUT_EFFECT}
    client = ClientOptions.from_properties({"client.id": "tailrace-spark", **left})
    return replace(client, isolation=Isolation.READ_COMMITTED)


def _delivery(given: Mapping[str, str]) -> Delivery:
    text = given.get("delivery", Delivery.AUTO).lower()
    if text not in tuple(Delivery):
        raise BadOptions(f"delivery is one of {', '.join(Delivery)}, and not {text!r}")
    if given.get("asyncprogresstrackingenabled", "false").lower() != "true":
        return Delivery(text)
    if text == Delivery.EXACTLY_ONCE:
        raise BadOptions("delivery=exactly-once cannot be had with asyncProgressTrackingEnabled: batches are not kept")
    return Delivery.AT_LEAST_ONCE


def _codec(text: str) -> Codec:
    return Codec[text.strip().upper()]


def _taken(properties: dict[str, str], name: str, parse: Callable[[str], Value], default: Value) -> Value:
    text = properties.pop(name, None)
    if text is None:
        return default
    try:
        value = parse(text)
        if isinstance(value, int) and not isinstance(value, Codec) and value <= 0:
            raise ValueError(text)
    except (ValueError, KeyError):
        of = ", ".join(codec.name.lower() for codec in Codec) if parse is _codec else "a whole number above 0"
        raise BadOptions(f"kafka.{name} is {of}, and not {text!r}") from None
    return value
