import os
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, resolved

from tailrace.broker.core.delayed import STEPS_AT_ONCE
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tailrace.testing.faulty_files import FaultyFiles

VERSIONS = [1, 2, 3, 4, 5]


def describe(broker: LocalBroker, version: int = 4, **wanted: list[int]) -> Any:
    topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    (result,) = broker.ask(DescribeLogDirsRequest(topics=topics or None), version).results
    return result


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, one.partition_index): one.partition_size for topic in result.topics for one in topic.partitions
    }


def on_disk(broker: LocalBroker, name: str) -> int:
    return sum(path.stat().st_size for path in (Path(broker.path) / name).glob("*.log"))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_has_the_size_of_its_segments(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 3, segment_bytes=str(1 << 20))
        for _ in range(3):
            broker.produce(b"x" * 600_000, partition=1)
        assert len(list((tmp_path / "orders-1").glob("*.log"))) == 3
        result = describe(broker, version)
        assert (result.error_code, result.log_dir) == (0, str(tmp_path))
        found = sizes(result)
        assert found.pop(("__tailrace_metadata", 0)) == on_disk(broker, "__tailrace_metadata-0") > 0
        assert found == {("orders", 0): 0, ("orders", 1): on_disk(broker, "orders-1"), ("orders", 2): 0}
        assert found["orders", 1] > 1_800_000
        assert not any(one.offset_lag or one.is_future_key for topic in result.topics for one in topic.partitions)


@pytest.mark.parametrize("version", VERSIONS)
def test_of_partitions_that_are_named_those_that_exist_are_told(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("orders", 2)
        result = describe(broker, version, orders=[1, 1, 2, -1], nobody=[0])
        assert sizes(result) == {("orders", 1): 0}


@pytest.mark.parametrize("version", VERSIONS)
def test_how_much_room_there_is(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        result, disk = describe(broker, version), os.statvfs(tmp_path)
        if version < 4:
            assert (result.total_bytes, result.usable_bytes) == (-1, -1)
        else:
            assert result.total_bytes == disk.f_blocks * disk.f_frsize
            assert 0 < result.usable_bytes <= result.total_bytes
        assert result.is_cordoned is False


def test_a_disk_that_does_not_say_is_not_waited_for_on_the_loop(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    with LocalBroker(tmp_path, files=files) as broker:
        broker.hold_jobs = True
        asked = files.count["space"]
        answers = resolved(broker.begin(DescribeLogDirsRequest(topics=None), 4))
        assert files.count["space"] == asked
        assert not answers
        files.fail("space", EIO)
        broker.run_jobs()
        (result,) = answers[0].results
        assert (result.error_code, result.total_bytes, result.usable_bytes) == (0, -1, -1)


def test_many_partitions_are_gone_through_in_turns(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("many", 3 * STEPS_AT_ONCE)
        broker.hold_jobs = True
        answers = resolved(broker.begin(DescribeLogDirsRequest(topics=None), 4))
        broker.delete_topic("many")
        broker.run_jobs()
        assert answers, "a topic that goes meanwhile holds up nobody"
        broker.hold_jobs = False
        broker.create_topic("many", 3 * STEPS_AT_ONCE)
        assert len(sizes(describe(broker))) == 3 * STEPS_AT_ONCE + 1
