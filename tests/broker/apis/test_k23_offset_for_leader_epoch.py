"""OffsetForLeaderEpoch: where epochs end, over unclean starts."""

from pathlib import Path

import pytest
from brokers import LocalBroker, only_partition

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

VERSIONS = range(2, 5)
UNKNOWN = (0, -1, -1)


def end_of(
    broker: LocalBroker, epoch: int, *, current: int = -1, topic: str = "orders", partition: int = 0, version: int = 4
) -> tuple[int, int, int]:
    """Error, epoch, end."""
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    answer = only_partition(broker.ask(request, version))
    assert answer.partition == partition
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_the_current_epoch_ends_where_the_partition_does(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a", b"b")
        assert end_of(broker, 0, version=version) == (0, 0, 2)


def test_it_ends_where_readers_may_see_no_further(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        broker.produce(b"b", acks=1)
        assert end_of(broker, 0) == (0, 0, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_earlier_epoch_ends_where_the_next_begins(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a", b"b")
        broker.kill()
        broker.kill()
        broker.produce(b"c")
        latest = broker.log().leader_epoch
        assert end_of(broker, 0, version=version) == (0, 0, 2)
        assert end_of(broker, latest, version=version) == (0, latest, 3)
        assert end_of(broker, latest + 1, version=version) == UNKNOWN
        assert end_of(broker, -1, version=version) == UNKNOWN


def test_in_a_partition_without_a_log_every_epoch_ends_where_it_begins(tmp_path: Path) -> None:
    """So that a reader that waited there over a crash goes on waiting, instead of starting somewhere else."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.kill()
        current = broker.broker.metadata.leader_epoch
        assert current > 0
        assert end_of(broker, current) == (0, current, 0)
        assert end_of(broker, current + 1) == UNKNOWN
        assert end_of(broker, current - 1) == (0, current - 1, 0)
        assert end_of(broker, -1) == UNKNOWN


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_with_another_epoch_is_told(tmp_path: Path, version: int) -> None:
    """Pitfall 21."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.kill()
        broker.produce(b"a")
        current = broker.log().leader_epoch
        assert end_of(broker, 0, current=current, version=version)[0] == 0
        assert end_of(broker, 0, current=current - 1, version=version)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert end_of(broker, 0, current=current + 1, version=version)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_partition_is_an_error(tmp_path: Path, version: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert end_of(broker, 0, topic="nobody", version=version) == unknown
        assert end_of(broker, 0, partition=1, version=version) == unknown
