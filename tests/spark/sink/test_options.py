"""Options of writing: the connector's and Kafka's names, and what is said where they cannot be."""

import pytest

from tailrace.client.errors import BadOption
from tailrace.client.options import Isolation
from tailrace.records.compression import Codec
from tailrace.spark.sink.options import BATCH_BYTES_MAX, Delivery, sink_options
from tailrace.spark.source.options import BadOptions, source_options

ONE = {"kafka.bootstrap.servers": "localhost:9092"}


def test_the_defaults() -> None:
    options = sink_options(ONE)
    assert (options.topic, options.delivery, options.codec) == (None, Delivery.AUTO, Codec.NONE)
    assert options.client.isolation is Isolation.READ_COMMITTED, "markers are read once they count"
    assert options.client.client_id == "tailrace-spark"


def test_names_are_taken_in_any_case() -> None:
    given = {"KAFKA.Bootstrap.Servers": "a:1", "TOPIC": "Orders", "Delivery": "Exactly-Once", "checkpointLocation": "x"}
    options = sink_options(given)
    assert (options.topic, options.delivery) == ("Orders", Delivery.EXACTLY_ONCE)


def test_properties_of_producers_are_used_or_have_no_effect() -> None:
    properties = {
        "kafka.acks": "-1",
        "kafka.compression.type": "zstd",
        "kafka.max.request.size": "500000",
        "kafka.delivery.timeout.ms": "7000",
        "kafka.transaction.timeout.ms": "90000",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": "5",
        "kafka.batch.size": "1000",
        "kafka.buffer.memory": "1",
        "kafka.retries": "3",
        "includeHeaders": "true",
    }
    options = sink_options(ONE | properties)
    assert (options.codec, options.batch_bytes_max, options.transaction_timeout_ms) == (Codec.ZSTD, 500_000, 90_000)
    assert options.client.retry_timeout_s == 7
    assert sink_options(ONE | {"kafka.max.request.size": "10485760"}).batch_bytes_max == BATCH_BYTES_MAX


def test_progress_that_spark_does_not_keep_is_no_ground_for_exactly_once() -> None:
    given = ONE | {"asyncProgressTrackingEnabled": "true"}
    assert sink_options(given).delivery is Delivery.AT_LEAST_ONCE
    with pytest.raises(BadOptions, match="asyncProgressTrackingEnabled"):
        sink_options(given | {"delivery": "exactly-once"})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kafka.bootstrap.servers": None}, "kafka.bootstrap.servers says where"),
        ({"topic": " "}, "option topic is empty"),
        ({"topics": "a"}, "is topic meant"),
        ({"subscribe": "a"}, "option subscribe is for reading"),
        ({"startingOffsets": "latest"}, "option startingOffsets is for reading"),
        ({"delivery": "twice"}, "delivery is one of auto, exactly-once, at-least-once"),
        ({"kafka.acks": "1"}, "kafka.acks is all here"),
        ({"kafka.compression.type": "brotli"}, "none, gzip, snappy, lz4, zstd, and not 'brotli'"),
        ({"kafka.max.request.size": "0"}, "a whole number above 0"),
        ({"kafka.transaction.timeout.ms": "soon"}, "a whole number above 0"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence is true here"),
        ({"kafka.transactional.id": "me"}, "kafka.transactional.id cannot be set: it is made from"),
        ({"kafka.partitioner.class": "x"}, "by murmur2"),
        ({"kafka.key.serializer": "x"}, "cast them before"),
        ({"kafka.isolation.level": "read_uncommitted"}, "kafka.isolation.level cannot be set: a sink reads nothing"),
    ],
)
def test_what_cannot_be_is_said(changed: dict[str, str | None], said: str) -> None:
    given = {name: value for name, value in (ONE | changed).items() if value is not None}
    with pytest.raises(BadOptions, match=said):
        sink_options(given)


def test_a_property_that_nobody_knows_is_refused_by_the_client() -> None:
    with pytest.raises(BadOption, match=r"no\.such\.thing"):
        sink_options(ONE | {"kafka.no.such.thing": "1"})


@pytest.mark.parametrize("name", ["topic", "delivery"])
def test_options_of_writing_are_not_for_reading(name: str) -> None:
    with pytest.raises(BadOptions, match=f"option {name} is for writing"):
        source_options(ONE | {"subscribe": "a", name: "auto"}, is_stream=False)
