"""Offsets that are committed in transactions: pending until the marker, and the same after any restart.

A model has what Kafka prescribes: each commit with the offset of its record, and of two the later record wins. After
every step the broker has what the model has, and so has a second coordinator that reads the log from the beginning.
"""

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from backlogs import configured, fill
from brokers import NOW_MS, LocalBroker
from group_requests import (
    BILLING,
    Asked,
    broker_for_groups,
    commit,
    fetch_request,
    offsets,
    offsets_in,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import DATA, memory_files
from transactions import TransactionalProducer

from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.groups import coordinator
from tailrace.broker.groups.coordinator import GroupCoordinator
from tailrace.broker.groups.records import NotSaved, OffsetCommitValue, partition_of
from tailrace.broker.metadata.internal_topics import read_batches
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tailrace.records.batch import NO_SEQUENCE
from tailrace.records.control import Marker, encode_marker
from tailrace.testing.faulty_files import FaultyFiles

ABORT, COMMIT = Marker.ABORT, Marker.COMMIT
Place = tuple[str, int]  # a group and a partition of `orders`


def delete_offset(broker: LocalBroker, group: str, partition: int) -> int:
    place = OffsetDeleteRequestPartition(partition_index=partition)
    topic = OffsetDeleteRequestTopic(name="orders", partitions=[place])
    return int(broker.ask(OffsetDeleteRequest(group_id=group, topics=[topic]), 0).error_code)


def delete_group(broker: LocalBroker, group: str) -> int:
    return int(broker.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code)


def read_anew(broker: LocalBroker) -> GroupCoordinator:
    """Another coordinator, which knows what the log has."""
    found = GroupCoordinator(broker.broker)
    found.load()
    broker.run_jobs()
    assert found.is_loaded
    return found


def committed(groups: GroupCoordinator) -> dict[Place, OffsetCommitValue]:
    return {
        (group, partition): value
        for group, topics in groups.offsets.groups()
        for partition, value in topics["orders"].items()
    }


def pending(groups: GroupCoordinator) -> dict[tuple[Place, int], tuple[int, OffsetCommitValue]]:
    return {
        ((group, partition), transaction.producer_id): (one.record_offset, one.value)
        for group in groups.offsets.pending.groups()
        for (_, partition), found in groups.offsets.pending.of_group(group).items()
        for transaction, one in found.items()
    }


# Any order of steps

GROUPS = ("a", "b", "c")  # a and c are in one partition of the log, b in the other
PRODUCERS = 2
groups_of_a_step = st.sampled_from(GROUPS)
numbers, some_offsets = st.integers(0, 1), st.dictionaries(st.integers(0, 1), st.integers(0, 9), min_size=1)


class Offsets:
    """The broker and the model, with the same steps."""

    def __init__(self) -> None:
        self.broker = broker_for_groups(DATA, {"offsets.topic.num.partitions": "2"}, files=memory_files())
        self.broker.create_topic(partitions=2)
        self.producers = [TransactionalProducer(self.broker, f"copier {number}") for number in range(PRODUCERS)]
        self.committed: dict[Place, tuple[int, int]] = {}  # record offset, and offset
        self.pending: dict[int, dict[Place, tuple[int, int]]] = {}  # by the number of the producer
        self.observed: dict[Place, int] = {}
        self._observe()

    def _observe(self) -> None:
        def changed(group: str, topic: str, partition: int, before: Any, now: Any) -> None:
            place = group, partition
            assert (None if before is None else before.offset) == self.observed.get(place)
            self.observed.pop(place, None)
            if now is not None:
                self.observed[place] = now.offset

        self.broker.broker.groups.observe_commits(changed)

    def _end_offset(self, group: str) -> int:
        topic = self.broker.broker.topic(OFFSETS_TOPIC)
        return 0 if topic is None else self.broker.partition(OFFSETS_TOPIC, partition_of(group, 2)).end_offset

    def commit(self, group: str, partition: int, offset: int) -> None:
        self.committed[group, partition] = self._end_offset(group), offset
        assert commit(self.broker, offset, partition=partition, group=group) == 0

    def commit_in_transaction(self, group: str, offsets: dict[int, int], number: int) -> None:
        transaction = self.pending.setdefault(number, {})
        for behind, (partition, offset) in enumerate(offsets.items()):
            transaction[group, partition] = self._end_offset(group) + behind, offset
        wanted = {("orders", partition): offset for partition, offset in offsets.items()}
        assert self.producers[number].commit_offsets(wanted, group) == dict.fromkeys(wanted, 0)

    def end(self, which: int, marker: Marker) -> None:
        """Ends one of the open transactions."""
        if not self.pending:
            return
        number = list(self.pending)[which % len(self.pending)]
        assert self.producers[number].end(commit=marker is COMMIT).error_code == 0
        for place, found in self.pending.pop(number).items():
            if marker is COMMIT and found[0] > self.committed.get(place, (-1, -1))[0]:
                self.committed[place] = found

    def delete_offset(self, group: str, partition: int) -> None:
        delete_offset(self.broker, group, partition)
        self._forget((group, partition))

    def delete_group(self, group: str) -> None:
        delete_group(self.broker, group)
        assert group not in self.broker.broker.groups.groups
        for partition in range(2):
            self._forget((group, partition))

    def _forget(self, place: Place) -> None:
        self.committed.pop(place, None)
        for transaction in self.pending.values():
            transaction.pop(place, None)

    def restart(self) -> None:
        self.broker.restart()
        self._observe()
        self.broker.tick(1)

    def kill(self) -> None:
        self.broker.kill()
        self._observe()
        self.broker.tick(1)

    def check_against_the_model(self) -> None:
        groups = self.broker.broker.groups
        expected = {place: offset for place, (_, offset) in self.committed.items()}
        assert {place: value.offset for place, value in committed(groups).items()} == expected == self.observed
        assert {place: (at, value.offset) for place, (at, value) in pending(groups).items()} == {
            (place, self.producers[number].identity[0]): found
            for number, places in self.pending.items()
            for place, found in places.items()
        }
        with_offsets = {group for group, _ in expected} | {place[0] for one in self.pending.values() for place in one}
        assert with_offsets <= groups.groups.keys(), "a group with offsets is not forgotten"

    def check_against_the_log(self) -> None:
        groups, anew = self.broker.broker.groups, read_anew(self.broker)
        assert committed(anew) == committed(groups)
        assert anew.offsets.pending._groups == groups.offsets.pending._groups
        assert anew.offsets.pending._transactions.keys() == groups.offsets.pending._transactions.keys()
        assert anew.groups.keys() <= groups.groups.keys()


steps = st.one_of(
    st.tuples(st.just(Offsets.commit), groups_of_a_step, numbers, st.integers(0, 9)),
    st.tuples(st.just(Offsets.commit_in_transaction), groups_of_a_step, some_offsets, st.integers(0, PRODUCERS - 1)),
    st.tuples(st.just(Offsets.end), st.integers(0, PRODUCERS - 1), st.sampled_from(Marker)),
    st.tuples(st.just(Offsets.delete_offset), groups_of_a_step, numbers),
    st.tuples(st.just(Offsets.delete_group), groups_of_a_step),
    st.tuples(st.sampled_from([Offsets.restart, Offsets.kill])),
)


@settings(max_examples=100)
@given(st.lists(steps, min_size=10, max_size=30))
def test_offsets_are_as_kafka_has_them_and_the_log_says_the_same(chosen: list[tuple[Any, ...]]) -> None:
    tried = Offsets()
    for step, *arguments in chosen:
        step(tried, *arguments)
        tried.check_against_the_model()
        tried.check_against_the_log()
    tried.broker.close()


# One thing at a time: producers that no coordinator of transactions looks at, until the next restart


def commit_in_transaction(
    broker: LocalBroker, offsets: Mapping[int, int], *, group: str = BILLING, producer: int = 1, epoch: int = 0
) -> None:
    """Offsets of partitions of `orders`, as one that is no member."""
    groups = broker.broker.groups
    groups.tell_time(broker.now_ms, broker.steady_ms)
    groups.group_for_commit(group, -1, ErrorCode.ILLEGAL_GENERATION)
    topic_id = broker.broker.metadata.topics["orders"].topic_id
    commits = [
        ("orders", partition, OffsetCommitValue(offset=offset, commit_timestamp=broker.now_ms, topic_id=topic_id))
        for partition, offset in offsets.items()
    ]
    groups.commit_in_transaction(group, commits, producer, epoch)
    broker.run_jobs()


def end_transaction(
    broker: LocalBroker, marker: Marker, *, group: str = BILLING, producer: int = 1, epoch: int = 0
) -> None:
    groups = broker.broker.groups
    write_marker(groups, groups.partition_of_group(group, broker.now_ms), marker, producer=producer, epoch=epoch)
    broker.run_jobs()


def write_marker(groups: GroupCoordinator, index: int, marker: Marker, *, producer: int = 1, epoch: int = 0) -> None:
    """Into one partition of the log of groups; nothing is flushed."""
    groups.end_transaction(index, producer, marker, encode_marker(marker, producer, epoch, 5, NOW_MS))


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with broker_for_groups(DATA, files=memory_files()) as made:
        made.create_topic(partitions=3)
        yield made


def test_a_plain_commit_behind_one_of_a_transaction_counts(broker: LocalBroker) -> None:
    commit_in_transaction(broker, {0: 5, 1: 6})
    assert commit(broker, 3) == 0
    end_transaction(broker, COMMIT)
    assert offsets(broker) == {("orders", 0): 3, ("orders", 1): 6}


def test_the_later_commit_of_a_transaction_counts(broker: LocalBroker) -> None:
    commit_in_transaction(broker, {0: 5, 1: 6})
    commit_in_transaction(broker, {0: 4})
    assert offsets(broker) == {}
    end_transaction(broker, COMMIT)
    assert offsets(broker) == {("orders", 0): 4, ("orders", 1): 6}


def test_an_aborted_transaction_leaves_the_offset_before_it(broker: LocalBroker) -> None:
    commit(broker, 3)
    commit_in_transaction(broker, {0: 5, 1: 6})
    end_transaction(broker, ABORT, epoch=1)
    assert offsets(broker) == {("orders", 0): 3}
    with pytest.raises(Refused) as refused:
        commit_in_transaction(broker, {0: 7})
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH, "the marker has fenced it"
    with pytest.raises(Refused) as refused:
        end_transaction(broker, COMMIT)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_is_one_batch_for_each_request_and_one_marker(broker: LocalBroker) -> None:
    commit_in_transaction(broker, {0: 5, 1: 6}, producer=7, epoch=3)
    end_transaction(broker, COMMIT, producer=7, epoch=4)
    written = list(read_batches(broker.log(OFFSETS_TOPIC)))
    assert [(len(one.records), one.marker, one.header.is_transactional) for one in written] == [
        (2, None, True),
        (0, COMMIT, True),
    ]
    assert [(one.header.producer_id, one.header.producer_epoch, one.header.base_sequence) for one in written] == [
        (7, 3, NO_SEQUENCE),
        (7, 4, NO_SEQUENCE),
    ]
    assert broker.log(OFFSETS_TOPIC).producers.producers[7].coordinator_epoch == 5
    assert broker.log(OFFSETS_TOPIC).last_stable_offset == 3


def test_a_marker_decides_one_partition_of_the_log() -> None:
    with broker_for_groups(DATA, {"offsets.topic.num.partitions": "2"}, files=memory_files()) as several:
        several.create_topic()
        assert {partition_of(group, 2) for group in ("a", "b")} == {0, 1}
        for group in ("a", "b"):
            commit_in_transaction(several, {0: 5}, group=group)
        end_transaction(several, COMMIT, group="a")
        assert [offsets(several, group) for group in ("a", "b")] == [{("orders", 0): 5}, {}]
        end_transaction(several, ABORT, group="b")
        assert [offsets(several, group) for group in ("a", "b")] == [{("orders", 0): 5}, {}]


def test_a_marker_where_nothing_is_pending_does_no_harm(broker: LocalBroker) -> None:
    groups = broker.broker.groups
    write_marker(groups, 0, COMMIT)
    assert broker.broker.topic(OFFSETS_TOPIC) is None, "nothing is created for it"
    assert groups.partition_of_group(BILLING, broker.now_ms) == 0
    write_marker(groups, 0, COMMIT)
    assert broker.partition(OFFSETS_TOPIC).log is None
    commit(broker, 3)
    for _ in range(2):
        write_marker(groups, 0, COMMIT)
        write_marker(groups, 9, COMMIT)  # no such partition
    broker.run_jobs()
    assert offsets(broker) == {("orders", 0): 3}
    assert broker.log(OFFSETS_TOPIC).last_stable_offset == broker.log(OFFSETS_TOPIC).end_offset == 3


def test_what_cannot_be_written_has_not_happened() -> None:
    files = FaultyFiles(memory_files())
    with broker_for_groups(DATA, files=files) as broker:
        broker.create_topic(partitions=2)
        commit_in_transaction(broker, {0: 5})
        files.fail("write_at", errno.ENOSPC, name=".log", forever=True)
        with pytest.raises(NotSaved):
            commit_in_transaction(broker, {0: 6, 1: 7})
        with pytest.raises(NotSaved):
            end_transaction(broker, COMMIT)
        files.heal()
        assert offsets(broker) == {}
        assert pending(broker.broker.groups).keys() == {((BILLING, 0), 1)}
        end_transaction(broker, COMMIT)
        assert offsets(broker) == {("orders", 0): 5}


def test_no_marker_is_written_before_the_log_has_been_read(broker: LocalBroker) -> None:
    commit_in_transaction(broker, {0: 5})
    reading = GroupCoordinator(broker.broker)
    with pytest.raises(NotSaved, match="has not been read"):
        write_marker(reading, 0, COMMIT)
    reading.load()
    broker.run_jobs()
    write_marker(reading, 0, COMMIT)
    assert {place: value.offset for place, value in committed(reading).items()} == {(BILLING, 0): 5}


def test_clients_see_a_committed_offset_when_the_marker_is_on_disk(broker: LocalBroker) -> None:
    commit_in_transaction(broker, {0: 5})
    broker.hold_jobs = True
    write_marker(broker.broker.groups, 0, COMMIT)
    fetched = Asked(broker, fetch_request(("orders", 0)), 9)
    assert not fetched.answer
    broker.run_flushes()
    assert offsets_in(fetched.answer.groups[0]) == {("orders", 0): 5}


def test_a_group_is_kept_while_offsets_are_pending_and_forgotten_after_the_abort(broker: LocalBroker) -> None:
    commit_in_transaction(broker, {0: 5})
    for _ in range(3):
        broker.tick(coordinator.FORGET_MS)
    assert BILLING in broker.broker.groups.groups
    end_transaction(broker, ABORT)
    broker.tick(coordinator.FORGET_MS)
    assert BILLING not in broker.broker.groups.groups


def test_a_deleted_group_does_not_come_back_with_a_commit(broker: LocalBroker) -> None:
    commit_in_transaction(broker, {0: 5})
    assert delete_group(broker, BILLING) == 0
    end_transaction(broker, COMMIT)
    assert offsets(broker) == {}
    assert read_anew(broker).groups == {}


def test_a_deleted_offset_does_not_come_back_with_a_commit(broker: LocalBroker) -> None:
    commit_in_transaction(broker, {0: 5, 1: 6})
    assert delete_offset(broker, BILLING, 0) == 0
    end_transaction(broker, COMMIT)
    assert offsets(broker) == {("orders", 1): 6}


@pytest.mark.parametrize("is_anew", [False, True])
def test_pending_offsets_go_with_their_topic(broker: LocalBroker, is_anew: bool) -> None:
    broker.create_topic("payments")
    commit_in_transaction(broker, {0: 5})
    broker.delete_topic("orders")
    if is_anew:
        broker.create_topic("orders")
    assert not broker.broker.groups.offsets.pending
    end_transaction(broker, COMMIT)
    assert offsets(broker) == {}


def test_pending_offsets_of_a_new_topic_outlive_the_old_one_of_that_name(broker: LocalBroker) -> None:
    """A deletion is carried out step by step, and the new topic may have offsets by then."""
    commit(broker, 3)
    commit_in_transaction(broker, {1: 4}, producer=2)
    broker.hold_jobs = True
    broker.delete_topic("orders")
    broker.create_topic("orders", partitions=3)
    commit_in_transaction(broker, {0: 5, 1: 6})
    broker.hold_jobs = False
    broker.run_jobs()
    end_transaction(broker, COMMIT)
    end_transaction(broker, COMMIT, producer=2)
    assert offsets(broker) == {("orders", 0): 5, ("orders", 1): 6}


def test_a_named_group_stands_where_its_committed_transactions_are(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(**configured("hold"))
        fill(broker, 6)
        named, partition = broker.broker.backlog.groups, broker.partition()
        for marker, offset, stands in ((ABORT, 2, 0), (COMMIT, 4, 4), (ABORT, 6, 4)):
            before = named.position(BILLING, partition)
            commit_in_transaction(broker, {0: offset})
            assert named.position(BILLING, partition) == before
            end_transaction(broker, marker)
            assert named.position(BILLING, partition) == stands
