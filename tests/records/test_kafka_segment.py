"""A segment written by Apache Kafka, read and written again. Its README in tests/data says what it holds."""

from pathlib import Path

import pytest

from tailrace.records import batch
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, decode_marker, encode_marker
from tailrace.records.decoders import Decoder, decode_with_cython, decode_with_python
from tailrace.records.record import decode_records, encode_batch

KAFKA_SEGMENT = Path(__file__).parents[1] / "data" / "kafka-segment" / "00000000000000000000.log"


def kafka_batches() -> list[tuple[batch.BatchHeader, bytes]]:
    data = KAFKA_SEGMENT.read_bytes()
    return [(header, data[position : position + header.size]) for position, header in batch.split(data)]


@pytest.mark.parametrize("decoder", [decode_with_cython, decode_with_python])
def test_a_segment_written_by_kafka_decodes_record_by_record(decoder: Decoder) -> None:
    records = [record for _, data in kafka_batches() for record in decode_records(data, decoder=decoder)]
    assert [record.offset for record in records] == list(range(1033))
    for codec in Codec:
        name = codec.name.lower().encode()
        for index, record in enumerate(records[200 * codec : 200 * (codec + 1)]):
            assert (record.key is None) == (index % 5 == 0)
            assert (record.value is None) == (index % 17 == 0)
            assert record.value is None or record.value.startswith(b"%s-%d-" % (name, index))
            assert record.headers == ((("c", name),) if index % 3 == 0 else ())
    for transaction, start in enumerate([1000, 1011, 1022], start=1):
        values = [record.value for record in records[start : start + 10]]
        assert values == [b"tx%d-%d" % (transaction, index) for index in range(10)]


def test_the_codecs_and_markers_of_a_segment_written_by_kafka_are_as_described() -> None:
    batches = kafka_batches()
    assert [(header.base_offset, header.codec) for header, _ in batches[:5]] == [(200 * c, c) for c in Codec]
    markers = {h.base_offset: decode_marker(decode_records(data)[0]) for h, data in batches if h.is_control}
    assert markers == {1010: (Marker.COMMIT, 0), 1021: (Marker.ABORT, 0), 1032: (Marker.COMMIT, 0)}


def test_plain_batches_of_kafka_are_encoded_again_byte_for_byte() -> None:
    for header, data in kafka_batches():
        if header.codec == Codec.NONE:
            assert data == encode_batch(
                decode_records(data),
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
                control=header.is_control,
            )


def test_markers_of_kafka_are_encoded_again_byte_for_byte() -> None:
    for header, data in kafka_batches():
        if header.is_control:
            (record,) = decode_records(data)
            marker, coordinator_epoch = decode_marker(record)
            assert marker is not None
            assert data == encode_marker(
                marker,
                header.producer_id,
                header.producer_epoch,
                coordinator_epoch,
                record.timestamp,
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
            )
