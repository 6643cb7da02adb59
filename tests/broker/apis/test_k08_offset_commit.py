"""OffsetCommit: who may commit what, and what is there afterwards."""

from pathlib import Path

import pytest
from group_requests import BILLING, Consumer, broker_for_groups, commit, commit_request, offsets, share

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

BY_NAME = range(2, 10)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", BY_NAME)
def test_what_is_committed_is_there(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        topic_id = broker.create_topic(partitions=3)
        answer = broker.ask(commit_request({("orders", 0): 7, ("orders", 2): 9}, note="by hand", epoch=5), version)
        told = [
            (topic.name, one.partition_index, one.error_code) for topic in answer.topics for one in topic.partitions
        ]
        assert told == [("orders", 0, 0), ("orders", 2, 0)]
        assert offsets(broker) == {("orders", 0): 7, ("orders", 2): 9}
        value = broker.broker.groups.offsets.get(BILLING, "orders", 2)
        assert value is not None
        assert (value.metadata, value.leader_epoch) == ("by hand", 5 if version >= 6 else -1)
        assert (value.commit_timestamp, value.topic_id) == (broker.now_ms, topic_id)


def test_topics_are_named_by_their_ids(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        topic_id = broker.create_topic()
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata=None)
            for index in (0, 1)
        ]
        topics = [
            OffsetCommitRequestTopic(topic_id=one, partitions=partitions) for one in (topic_id, b"nobody's own id.")
        ]
        answer = broker.ask(OffsetCommitRequest(group_id=BILLING, topics=topics), 10)
        assert [(topic.topic_id, [one.error_code for one in topic.partitions]) for topic in answer.topics] == [
            (topic_id, [0, UNKNOWN]),
            (b"nobody's own id.", [ErrorCode.UNKNOWN_TOPIC_ID] * 2),
        ]
        assert offsets(broker) == {("orders", 0): 7}


@pytest.mark.parametrize("version", BY_NAME)
def test_what_cannot_be_committed_is_named_and_the_rest_is_committed(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path, {"offset.metadata.max.bytes": "10"}) as broker:
        broker.create_topic(partitions=2)
        request = commit_request({("orders", 0): 7, ("orders", 2): 7, ("nobody", 0): 7, ("orders", -1): 7})
        request.topics += commit_request({("orders", 1): 7}, note="ü" * 10).topics
        request.topics += commit_request({("orders", 1): 8}, note="ü" * 11).topics
        answer = broker.ask(request, version)
        assert [(topic.name, topic.partitions[0].error_code) for topic in answer.topics] == [
            ("orders", 0),
            ("orders", UNKNOWN),
            ("nobody", UNKNOWN),
            ("orders", UNKNOWN),
            ("orders", 0),
            ("orders", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ]
        assert offsets(broker) == {("orders", 0): 7, ("orders", 1): 7}


@pytest.mark.parametrize("version", BY_NAME)
def test_members_commit_in_their_generation(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        a, _ = share(Consumer(broker, "a"), Consumer(broker, "b"))

        def code(member_id: str, generation: int) -> int:
            request = commit_request({("orders", 0): 7}, member_id=member_id, generation_id_or_member_epoch=generation)
            return int(broker.ask(request, version).topics[0].partitions[0].error_code)

        assert code(a.member_id, 2) == 0
        assert code(a.member_id, 1) == ErrorCode.ILLEGAL_GENERATION
        assert code(a.member_id, 3) == ErrorCode.ILLEGAL_GENERATION
        assert code("nobody", 2) == ErrorCode.UNKNOWN_MEMBER_ID
        assert code("", -1) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(7, 10))
def test_a_static_member_whose_place_was_taken_commits_nothing(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        old, _ = share(Consumer(broker, "a", instance_id="till"), Consumer(broker, "b"))
        new = Consumer(broker, "a", instance_id="till")
        new.join()
        codes = []
        for offset, member in ((7, old), (8, new)):
            request = commit_request(
                {("orders", 0): offset},
                member_id=member.member_id,
                generation_id_or_member_epoch=2,
                group_instance_id="till",
            )
            codes.append(broker.ask(request, version).topics[0].partitions[0].error_code)
        assert codes == [ErrorCode.FENCED_INSTANCE_ID, 0]
        assert offsets(broker) == {("orders", 0): 8}


@pytest.mark.parametrize("version", BY_NAME)
def test_a_member_of_a_group_that_is_not_there_is_told(tmp_path: Path, version: int) -> None:
    """From version 9 on by another code, as Kafka does it."""
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        request = commit_request({("orders", 0): 7}, member_id="a", generation_id_or_member_epoch=3)
        (topic,) = broker.ask(request, version).topics
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        assert topic.partitions[0].error_code == expected
        assert BILLING not in broker.broker.groups.groups


@pytest.mark.parametrize("version", BY_NAME)
def test_until_work_is_shared_out_members_have_to_wait(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        a = Consumer(broker, "a")
        a.enter()
        request = commit_request({("orders", 0): 7}, member_id=a.member_id, generation_id_or_member_epoch=1)
        code = broker.ask(request, version).topics[0].partitions[0].error_code
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        a.sync({})
        assert a.commit(7) == 0


@pytest.mark.parametrize("version", range(2, 5))
def test_a_client_that_says_how_long_to_keep_it_is_kept_longer(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        broker.ask(commit_request({("orders", 0): 7}, retention_time_ms=1_000), version)
        for _ in range(10):
            broker.tick(1 << 40)
        broker.restart()
        assert offsets(broker) == {("orders", 0): 7}


def test_a_commit_may_go_back_and_the_last_one_counts(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        for offset in (7, 3, 5):
            assert commit(broker, offset) == 0
        twice = commit_request({("orders", 0): 8})
        twice.topics += commit_request({("orders", 0): 9}).topics
        broker.ask(twice, 9)
        assert offsets(broker) == {("orders", 0): 9}


def test_a_commit_of_nothing_is_no_error_and_writes_nothing(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        assert broker.ask(commit_request({}), 9).topics == []
        assert "__consumer_offsets" not in broker.broker.metadata.topics
