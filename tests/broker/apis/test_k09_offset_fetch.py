"""OffsetFetch: what was committed, of one group or several; where nothing was, -1."""

from pathlib import Path
from typing import Any

import pytest
from group_requests import (
    BILLING,
    broker_for_groups,
    commit,
    commit_request,
    fetch_request,
)
from transactions import TransactionalProducer

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

BY_NAME = range(1, 10)


def found(answer: Any, version: int) -> dict[tuple[str, int], tuple[int, int, str, int]]:
    """Offset, leader epoch, note and error by partition."""
    if version >= 8:
        (answer,) = answer.groups
    assert answer.error_code == 0
    return {
        (topic.name, one.partition_index): (
            one.committed_offset,
            one.committed_leader_epoch,
            one.metadata,
            one.error_code,
        )
        for topic in answer.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", BY_NAME)
def test_what_was_committed_is_found_with_its_note(tmp_path: Path, version: int) -> None:
    """Pitfall 31."""
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=2)
        broker.ask(commit_request({("orders", 0): 7}, note="by hand", epoch=5), 9)
        places = [("orders", 0), ("orders", 1), ("orders", 9), ("nobody", 0)]
        answer = broker.ask(fetch_request(*places, version=version), version)
        epoch = 5 if version >= 5 else -1
        nothing = (-1, -1, "", 0)
        assert found(answer, version) == {
            ("orders", 0): (7, epoch, "by hand", 0),
            ("orders", 1): nothing,
            ("orders", 9): nothing,
            ("nobody", 0): nothing,
        }


@pytest.mark.parametrize("version", BY_NAME)
def test_a_group_that_nobody_knows_has_come_nowhere(tmp_path: Path, version: int) -> None:
    """Pitfall 31: no error."""
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        answer = broker.ask(fetch_request(("orders", 0), version=version), version)
        assert found(answer, version) == {("orders", 0): (-1, -1, "", 0)}
        assert broker.broker.groups.groups == {}, "asking makes no group"


@pytest.mark.parametrize("version", range(2, 10))
def test_without_topics_all_that_there_is_is_found(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=2)
        broker.create_topic("payments")
        assert found(broker.ask(fetch_request(version=version, is_all=True), version), version) == {}
        commit(broker, 7, partition=1)
        commit(broker, 8, "payments")
        answer = broker.ask(fetch_request(version=version, is_all=True), version)
        assert {place: one[0] for place, one in found(answer, version).items()} == {
            ("orders", 1): 7,
            ("payments", 0): 8,
        }
        assert found(broker.ask(fetch_request(version=version), version), version) == {}, "no topics are no topics"


@pytest.mark.parametrize("version", range(7, 10))
def test_an_offset_is_stable_unless_a_transaction_has_another_pending(tmp_path: Path, version: int) -> None:
    places = [("orders", 0), ("orders", 1), ("orders", 2)]

    def offsets(*, require_stable: bool, is_all: bool = False) -> dict[Any, Any]:
        request = fetch_request(*places, version=version, is_all=is_all, require_stable=require_stable)
        return {place[1]: told for place, told in found(broker.ask(request, version), version).items()}

    unstable, nothing = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT), (-1, -1, "", 0)
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=3)
        broker.ask(commit_request({("orders", 0): 7, ("orders", 2): 3}, note="old"), 9)
        old, other = (7, -1, "old", 0), (3, -1, "old", 0)
        before = {0: old, 1: nothing, 2: other}
        assert offsets(require_stable=True) == offsets(require_stable=False) == before
        producer = TransactionalProducer(broker)
        for commits in (False, True):
            for partition, offset in ((0, 8), (1, 9)):
                assert producer.commit_offset(offset, partition=partition) == ErrorCode.NONE
            assert offsets(require_stable=True) == {0: unstable, 1: unstable, 2: other}
            assert offsets(require_stable=True, is_all=True) == {0: unstable, 2: other}
            assert offsets(require_stable=False) == before
            broker.kill()
            assert offsets(require_stable=True)[0] == unstable, "after a restart, too"
            assert producer.end(commit=commits).error_code == 0
            now = {0: (8, -1, "", 0), 1: (9, -1, "", 0), 2: other} if commits else before
            assert offsets(require_stable=True) == offsets(require_stable=False) == now


def test_an_offset_is_unstable_in_its_own_group_and_with_topic_ids_too(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        topic_id = broker.create_topic()
        commit(broker, 7, group="other")
        assert TransactionalProducer(broker).commit_offset(8) == ErrorCode.NONE
        topics = [
            OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (topic_id, b"nobody's own id.")
        ]
        wanted = [OffsetFetchRequestGroup(group_id=group, topics=topics) for group in (BILLING, "other")]
        answer = broker.ask(OffsetFetchRequest(groups=wanted, require_stable=True), 10)
        unknown = -1, ErrorCode.UNKNOWN_TOPIC_ID
        assert [
            [(one.committed_offset, one.error_code) for topic in group.topics for one in topic.partitions]
            for group in answer.groups
        ] == [[(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), unknown], [(7, 0), unknown]]


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_are_answered_each(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 7)
        commit(broker, 8, group="other")
        topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
        wanted = [
            OffsetFetchRequestGroup(group_id="other", topics=None),
            OffsetFetchRequestGroup(group_id="nobody", topics=topics),
            OffsetFetchRequestGroup(group_id=BILLING, topics=topics),
        ]
        answer = broker.ask(OffsetFetchRequest(groups=wanted), version)
        assert [(one.group_id, one.topics[0].partitions[0].committed_offset) for one in answer.groups] == [
            ("other", 8),
            ("nobody", -1),
            (BILLING, 7),
        ]


def test_topics_are_named_by_their_ids(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        topic_id = broker.create_topic()
        commit(broker, 7)
        unknown = b"nobody's own id."
        topics = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0, 1]) for one in (topic_id, unknown)]
        answers = []
        for named in (topics, None):
            wanted = [OffsetFetchRequestGroup(group_id=BILLING, topics=named)]
            answers += broker.ask(OffsetFetchRequest(groups=wanted), 10).groups
        listed, whole = answers
        assert [
            (topic.topic_id, [(one.committed_offset, one.error_code) for one in topic.partitions])
            for topic in listed.topics
        ] == [
            (topic_id, [(7, 0), (-1, 0)]),
            (unknown, [(-1, ErrorCode.UNKNOWN_TOPIC_ID)] * 2),
        ]
        assert [topic.topic_id for topic in whole.topics] == [topic_id]


@pytest.mark.parametrize("version", BY_NAME)
def test_an_error_of_the_whole_answer_is_where_clients_of_each_version_look_for_it(
    tmp_path: Path, version: int
) -> None:
    """Version 1 has no place for it but the partitions. An empty answer would mean that nothing was committed."""
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        broker.broker.groups._is_loaded = False
        answer = broker.ask(fetch_request(("orders", 0), version=version), version)
        if version == 1:
            (partition,) = answer.topics[0].partitions
            told = partition.error_code, partition.committed_offset, partition.metadata
            assert told == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, "")
        else:
            told_of = answer.groups[0] if version >= 8 else answer
            assert (told_of.error_code, told_of.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
