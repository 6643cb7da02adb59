"""Keys of batches for compacted topics: small batches are checked at once, larger ones in a thread, in order."""

from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker, only_partition, produce_request
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.produce import key_checks
from tailrace.broker.produce.recompression import Conversion
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.batch import seal
from tailrace.records.compression import Codec
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import Record, decode_records, encode_batch

COMPACTED: dict[str, Any] = {"cleanup.policy": "compact"}


def keyed(count: int, *, bare: tuple[int, ...] = (), codec: Codec = Codec.ZSTD, headers: Any = ()) -> bytearray:
    records = [Record(n, NOW_MS, None if n in bare else b"k", b"", headers) for n in range(count)]
    return encode_batch(records, codec=codec)


def begin(broker: LocalBroker, batch: bytearray) -> list[Any]:
    """A list that the partition's answer comes into."""
    answers: list[Any] = []
    answer = broker.begin(produce_request(batch, acks=1), 12)
    if hasattr(answer, "when_resolved"):
        answer.when_resolved(lambda resolved: answers.append(only_partition(resolved)))
    else:
        answers.append(only_partition(answer))
    return answers


@pytest.mark.parametrize("kind", ["producer", "gzip"])
def test_a_large_batch_is_checked_in_a_thread_and_later_batches_queue_behind_it(tmp_path: Path, kind: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**COMPACTED, compression_type=kind)
        held = broker.hold(Conversion)
        large, bare = begin(broker, keyed(50_000)), begin(broker, keyed(2_000, bare=(5, 1_999)))
        small = begin(broker, keyed(10, codec=Codec.GZIP))
        assert (large, bare, small, len(held)) == ([], [], [], 2), "nothing was decoded on the broker's thread"
        for job, finish in reversed(held):
            job.run()
            finish()
        assert (large[0].error_code, large[0].base_offset) == (0, 0)
        assert bare[0].error_code == ErrorCode.INVALID_RECORD
        assert [one.batch_index for one in bare[0].record_errors] == [5, 1_999]
        assert (small[0].error_code, small[0].base_offset) == (0, 50_000)


def test_a_request_checks_one_slice_at_once_and_has_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_checks, "REQUEST_RECORDS_MAX", 3_000)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=5, **COMPACTED)
        held = broker.hold(Conversion)
        data = [PartitionProduceData(index=index, records=keyed(900)) for index in range(5)]
        request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="orders", partition_data=data)])
        answers: list[Any] = []
        broker.begin(request, 12).when_resolved(answers.append)
        while held:
            job, finish = held.pop()
            job.run()
            finish()
        codes = [answer.error_code for answer in answers[0].responses[0].partition_responses]
        assert codes == [0, 0, 0, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE]


def test_a_response_lists_a_bounded_number_of_records_without_a_key(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**COMPACTED)
        answer = only_partition(broker.ask(produce_request(keyed(3_000, bare=tuple(range(3_000)))), 12))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [one.batch_index for one in answer.record_errors] == list(range(1_000))


RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=3), st.binary(max_size=40), st.integers(0, 2)), min_size=1, max_size=40
)


@given(RECORDS, st.sampled_from([Codec.NONE, Codec.GZIP]), st.none() | st.tuples(st.integers(0), st.integers(1, 255)))
def test_slices_are_judged_as_the_whole_batch_is(
    rows: list[tuple[bytes | None, bytes, int]], codec: Codec, flip: tuple[int, int] | None
) -> None:
    batch = encode_batch(
        [Record(n, 1, key, value, (("h", b"v"),) * headers) for n, (key, value, headers) in enumerate(rows)],
        codec=codec,
    )
    if flip is not None and codec == Codec.NONE:
        batch[61 + flip[0] % (len(batch) - 61)] ^= flip[1]
        seal(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_checks, "SLICE_RECORDS_MAX", 7)
        patch.setattr(key_checks, "SLICE_BYTES_MAX", 64)
        try:
            expected: Any = [n for n, record in enumerate(decode_records(batch)) if record.key is None]
        except CorruptBatch:
            expected = CorruptBatch
        try:
            found: Any = key_checks.missing_keys(key_checks.open_batch(batch))
        except CorruptBatch:
            found = CorruptBatch
        assert found == expected
