"""TxnOffsetCommit: which clients may commit offsets in a transaction, and what their offsets must be."""

from collections.abc import Iterator
from typing import Any

import pytest
from brokers import LocalBroker
from group_requests import BILLING, Consumer, broker_for_groups, commit, fetch_request, offsets, share
from logs import DATA, memory_files
from transactions import TransactionalProducer, Waiting, known

from tailrace.broker.transactions.state import State
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

NONE = ErrorCode.NONE
PLACE = ("orders", 0)
ALL_VERSIONS = range(6)
WITH_MEMBERS = range(3, 6)  # versions that name a member


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with broker_for_groups(DATA, files=memory_files()) as made:
        made.create_topic(partitions=2)
        yield made


@pytest.fixture
def producer(broker: LocalBroker) -> TransactionalProducer:
    """One that has added the offsets of the group: no version of the request is refused for want of that."""
    made = TransactionalProducer(broker)
    assert made.add_offsets() == NONE
    return made


def code_of(producer: TransactionalProducer, offset: int = 5, version: int = 5, **fields: Any) -> int:
    """The error code of a commit for one partition."""
    return producer.commit_offsets({PLACE: offset}, version=version, **fields)[PLACE]


# Offsets


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_offsets_count_with_the_transaction(broker: LocalBroker, version: int) -> None:
    commit(broker, 3)
    producer = TransactionalProducer(broker)
    for commits in (False, True):
        assert producer.add_offsets() == NONE
        wanted = {PLACE: 5, ("orders", 1): 6}
        assert producer.commit_offsets(wanted, note="note", version=version) == dict.fromkeys(wanted, NONE)
        assert producer.commit_offsets({PLACE: 7}, version=version) == {PLACE: NONE}, "a second request"
        assert offsets(broker) == {PLACE: 3}
        assert producer.end(commit=commits).error_code == NONE
        assert offsets(broker) == ({PLACE: 7, ("orders", 1): 6} if commits else {PLACE: 3})


def test_offsets_of_several_groups_count_together(broker: LocalBroker, producer: TransactionalProducer) -> None:
    for group, offset in (("a", 1), ("b", 2)):
        assert code_of(producer, offset, group_id=group) == NONE
    assert producer.commit().error_code == NONE
    assert [offsets(broker, group)[PLACE] for group in ("a", "b")] == [1, 2]


def test_the_note_and_the_leader_epoch_of_an_offset_are_kept(
    broker: LocalBroker, producer: TransactionalProducer
) -> None:
    request = producer.offsets_request({PLACE: 5}, note="by hand", epoch=4)
    broker.ask(request, 5)
    producer.commit()
    (topic,) = broker.ask(fetch_request(PLACE), 9).groups[0].topics
    (found,) = topic.partitions
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (5, 4, "by hand")


def test_partitions_that_are_unknown_and_notes_that_are_too_long_are_refused_each(
    broker: LocalBroker, producer: TransactionalProducer
) -> None:
    unknown, long = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_METADATA_TOO_LARGE
    wanted = {PLACE: 5, ("orders", 2): 5, ("orders", -1): 5, ("nobody", 0): 5}
    codes = {PLACE: NONE, ("orders", 2): unknown, ("orders", -1): unknown, ("nobody", 0): unknown}
    assert producer.commit_offsets(wanted) == codes
    assert producer.commit_offsets({PLACE: 6, ("orders", 2): 6}, note="x" * 4097) == {
        PLACE: long,
        ("orders", 2): unknown,
    }
    assert code_of(producer, 7, note="x" * 4096) == NONE
    assert code_of(producer, 8, note=None) == NONE
    producer.commit()
    assert offsets(broker) == {PLACE: 8}


def test_the_response_comes_when_the_offsets_are_on_disk(broker: LocalBroker, producer: TransactionalProducer) -> None:
    broker.hold_jobs = True
    waiting = Waiting(broker, producer.offsets_request({PLACE: 5}), 5)
    assert not waiting.is_answered
    broker.run_flushes()
    assert waiting.answer.topics[0].partitions[0].error_code == NONE


def test_a_plain_commit_in_the_middle_of_the_transaction_counts(
    broker: LocalBroker, producer: TransactionalProducer
) -> None:
    assert code_of(producer, 5) == NONE
    commit(broker, 3)
    producer.commit()
    assert offsets(broker) == {PLACE: 3}


# The group


def test_a_group_must_have_a_name(broker: LocalBroker) -> None:
    producer = TransactionalProducer(broker)
    for version in ALL_VERSIONS:
        assert code_of(producer, group_id="", version=version) == ErrorCode.INVALID_GROUP_ID
    assert known(broker).state is State.EMPTY, "nothing was added"


@pytest.mark.parametrize("version", WITH_MEMBERS)
def test_a_group_that_is_unknown_has_no_generation(
    broker: LocalBroker, producer: TransactionalProducer, version: int
) -> None:
    assert code_of(producer, version=version, generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert BILLING not in broker.broker.groups.groups
    assert code_of(producer, version=version, generation_id=-1) == NONE
    assert BILLING in broker.broker.groups.groups


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_client_that_names_no_member_may_commit_while_the_group_has_members(
    broker: LocalBroker, producer: TransactionalProducer, version: int
) -> None:
    share(Consumer(broker, "a"))
    assert code_of(producer, version=version) == NONE


@pytest.mark.parametrize("version", WITH_MEMBERS)
def test_a_client_that_names_a_member_must_be_that_one(
    broker: LocalBroker, producer: TransactionalProducer, version: int
) -> None:
    a, till = share(Consumer(broker, "a"), Consumer(broker, "b", instance_id="till"))
    generation = a.generation

    def code(member_id: str, generation_id: int, instance_id: str | None = None) -> int:
        member: dict[str, Any] = {"member_id": member_id, "generation_id": generation_id}
        member["group_instance_id"] = instance_id
        return code_of(producer, version=version, **member)

    assert code(a.member_id, generation) == NONE
    assert code(till.member_id, generation, "till") == NONE
    assert code(a.member_id, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert code(a.member_id, -1) == ErrorCode.ILLEGAL_GENERATION
    assert code("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code("", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(a.member_id, generation, "till") == ErrorCode.FENCED_INSTANCE_ID
    assert code(a.member_id, generation, "desk") == ErrorCode.UNKNOWN_MEMBER_ID
    producer.commit()
    assert offsets(broker) == {PLACE: 5}


def test_members_may_commit_while_the_group_rebalances(broker: LocalBroker, producer: TransactionalProducer) -> None:
    """Other than without a transaction: the work is done, and belongs to it."""
    (a,) = share(Consumer(broker, "a"))
    before: dict[str, Any] = {"member_id": a.member_id, "generation_id": a.generation}
    Consumer(broker, "b").enter()
    assert code_of(producer, **before) == NONE, "members join again"
    a.join()
    assert a.commit(5) == ErrorCode.REBALANCE_IN_PROGRESS
    assert code_of(producer, **before) == ErrorCode.ILLEGAL_GENERATION
    assert code_of(producer, member_id=a.member_id, generation_id=a.generation) == NONE, "the leader assigns"


def test_a_client_without_a_generation_may_commit_while_the_group_is_empty(
    broker: LocalBroker, producer: TransactionalProducer
) -> None:
    """Whatever member it was, as without a transaction."""
    (a,) = share(Consumer(broker, "a"))
    a.leave()
    assert code_of(producer, member_id=a.member_id) == NONE
    assert code_of(producer, member_id=a.member_id, generation_id=a.generation) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_old_clients_do_not_know_that_the_coordinator_is_loading(
    broker: LocalBroker, producer: TransactionalProducer, version: int
) -> None:
    broker.broker.groups._is_loaded = False
    expected = ErrorCode.COORDINATOR_NOT_AVAILABLE if version < 2 else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(producer, version=version) == expected
    broker.broker.groups._is_loaded = True


# The transaction


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_offsets_are_added_before_or_with_version_5(broker: LocalBroker, version: int) -> None:
    producer = TransactionalProducer(broker)
    refused = ErrorCode.TRANSACTION_ABORTABLE if version == 4 else ErrorCode.INVALID_TXN_STATE
    assert code_of(producer, version=version) == (NONE if version == 5 else refused)
    assert known(broker).state is (State.ONGOING if version == 5 else State.EMPTY)
    assert producer.abort().error_code == NONE
    assert offsets(broker) == {}


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_producer_must_be_the_one_that_has_the_transaction(
    broker: LocalBroker, producer: TransactionalProducer, version: int
) -> None:
    producer_id, epoch = producer.identity
    producer.identity = producer_id + 1, epoch
    assert code_of(producer, version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for other in (epoch - 1, epoch + 1):
        producer.identity = producer_id, other
        assert code_of(producer, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
    producer.transactional_id = "nobody"
    producer.identity = producer_id, epoch
    assert code_of(producer, version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_who_the_producer_is_is_checked_before_the_group(broker: LocalBroker) -> None:
    fenced, current = TransactionalProducer(broker), TransactionalProducer(broker)
    assert code_of(fenced, generation_id=7) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(current, generation_id=7) == ErrorCode.ILLEGAL_GENERATION


def test_a_transaction_with_offsets_only_ends(broker: LocalBroker) -> None:
    """Its only marker is one in the log of groups."""
    producer = TransactionalProducer(broker, version=0)
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.identity[0],
        producer_epoch=producer.identity[1],
        group_id="other",
    )
    assert broker.ask(request, 3).error_code == NONE
    assert producer.commit_offset(5) == ErrorCode.NONE
    assert producer.commit().error_code == NONE
    assert offsets(broker) == {PLACE: 5}
    assert offsets(broker, "other") == {}
