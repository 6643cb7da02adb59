"""Shifted bytes in a sealed segment, as clients of a running broker see them."""

import shutil
from pathlib import Path

import pytest
from brokers import fetch_request, from_offset, only_partition
from nodes import RunningNode
from raw_client import RawClient
from shifted import Stored, check_reads, doubled, inserted, removed, swapped, without_batch

from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.tools.locate import locate
from tailrace.log.tools.verify import verify
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

KINDS = {
    "a byte inserted into a header": lambda content: inserted(content, 10, "header", 1, 1),
    "zeros inserted into a body": lambda content: inserted(content, 10, "body", 100, 0),
    "bytes inserted between batches": lambda content: inserted(content, 10, "boundary", 7, 1),
    "bytes removed": lambda content: removed(content, 10, "body", 7),
    "doubled": lambda content: doubled(content, 10, 10),
    "doubled far behind": lambda content: doubled(content, 10, 30),
    "swapped": lambda content: swapped(content, 10, 11),
    "swapped far apart": lambda content: swapped(content, 10, 30),
    "gone": lambda content: without_batch(content, 10),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after a clean stop, whose topic has several segments with several index entries each."""
    path = tmp_path_factory.mktemp("sound") / "data"
    with RunningNode(path) as node:
        node.create_topic(segment_bytes=str(1 << 20))
        with RawClient(node.address) as client:
            for number in range(200):
                client.produce(*[b"value %d" % number * (800 + 100 * (number % 5))] * (1 + number % 3))
    assert len(segments_of(path)) > 2, "the damaged segment is a sealed one"
    return path


def segments_of(data: Path) -> list[Path]:
    return sorted((data / "orders-0").glob("*.log"))


@pytest.mark.parametrize("lost", ["", ".index", ".timeindex", ".sums"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fetch_of_every_offset_is_answered_or_refused(sound: Path, tmp_path: Path, kind: str, lost: str) -> None:
    stored = Stored.of([path.read_bytes() for path in segments_of(sound)])
    data = tmp_path / "data"
    shutil.copytree(sound, data)
    bad = segments_of(data)[1]
    shift = KINDS[kind](bad.read_bytes())
    bad.write_bytes(shift.content)
    if lost:
        bad.with_suffix(lost).unlink()
    files = OperatingSystemFiles()
    damage = verify(files, locate(files, str(data))).damage
    assert damage
    with RunningNode(data) as node, RawClient(node.address) as client:

        def read(offset: int) -> bytes | tuple[int, int]:
            answer = only_partition(client.ask(fetch_request(from_offset(offset, max_bytes=70_000)), 12))
            if answer.error_code == ErrorCode.NONE:
                return bytes(answer.records or b"")
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
            (named,) = [one for one in damage if one.first_offset <= offset <= one.last_offset]
            return named.first_offset, named.last_offset

        named = check_reads(stored, read)
        assert named <= stored.offsets_of(shift.touched)
        check_listing(client, stored)


def check_listing(client: RawClient, stored: Stored) -> None:
    """A lookup by time finds the first record of that time, or says that damage may hide it."""
    for timestamp in {found.timestamp for found in stored.times}:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[partition])])
        answer = only_partition(client.ask(request, 7))
        if answer.error_code != ErrorCode.CORRUPT_MESSAGE:
            assert answer.error_code == ErrorCode.NONE
            assert (answer.offset, answer.timestamp) == stored.first_at_or_after(timestamp)
