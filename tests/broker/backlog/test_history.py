"""`__tailrace_positions`: where groups stood, found again from the records that retention keeps."""

from errno import EIO
from pathlib import Path

import pytest
from brokers import LocalBroker
from group_requests import BILLING, broker_for_groups, commit
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.backlog import history
from tailrace.broker.core.topics import POSITIONS_TOPIC
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.facts import positions
from tailrace.facts.positions import GroupPositions
from tailrace.log.layout.errors import StorageError
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.records.batch import split
from tailrace.records.record import decode_records

MINUTE = 60_000
INTERVAL = "tailrace.group.history.interval.ms"
KEPT = "tailrace.group.history.ms"


def recorded(broker: LocalBroker) -> list[GroupPositions]:
    broker.run_jobs()
    if broker.broker.topic(POSITIONS_TOPIC) is None:
        return []
    log = broker.log(POSITIONS_TOPIC)
    offset, found = int(log.start_offset), list[GroupPositions]()
    while (piece := log.read(offset, 1 << 20)) is not None:
        with piece:
            data, offset = piece.read(), piece.next_offset
        for position, _ in split(data):
            found += [positions.decode(record.value or b"") for record in decode_records(data, position)]
    return found


def held(records: list[GroupPositions], group: str, at: int) -> dict[str, dict[int, int]] | None:
    """What a reader makes of the records; None if they do not reach back so far."""
    return positions.held_at([one for one in records if one.group == group], at)


def test_a_group_that_moves_is_recorded_once_in_an_interval(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path, {INTERVAL: "5000"}) as broker:
        broker.create_topic(partitions=3)
        broker.tick()
        for number in range(20):
            commit(broker, number, partition=number % 3)
            broker.tick()
        found = recorded(broker)
        assert [one.offsets for one in found] == [
            {"orders": {0: 3, 1: 4, 2: 2}},
            {"orders": {0: 9, 1: 7, 2: 8}},
            {"orders": {0: 12, 1: 13, 2: 14}},
            {"orders": {0: 18, 1: 19, 2: 17}},
        ]
        assert {one.group for one in found} == {BILLING}
        assert all(one.complete for one in found)


def test_only_changed_offsets_are_recorded(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=3)
        for partition in range(3):
            commit(broker, 10, partition=partition)
        broker.tick()
        broker.tick(MINUTE)
        commit(broker, 11, partition=1)
        commit(broker, 10, partition=2)
        broker.tick(MINUTE)
        assert [(one.complete, one.offsets) for one in recorded(broker)] == [
            (True, {"orders": {0: 10, 1: 10, 2: 10}}),
            (False, {"orders": {1: 11}}),
        ]


def test_groups_that_do_not_move_write_nothing_between_passes_and_can_still_be_found(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path, {KEPT: str(60 * MINUTE)}) as broker:
        broker.create_topic()
        commit(broker, 7)
        broker.tick()
        broker.tick(MINUTE)
        assert len(recorded(broker)) == 1
        for _ in range(20):
            broker.tick(MINUTE)
        assert len(recorded(broker)) == 1
        for _ in range(300):
            broker.tick(MINUTE)
        found = recorded(broker)
        assert 3 <= len(found) <= 8, "retention deletes the oldest"
        now = broker.now_ms
        assert all(held(found, BILLING, now - minutes * MINUTE) == {"orders": {0: 7}} for minutes in range(61))
        assert held(found, BILLING, now - 320 * MINUTE) is None


def test_deleted_groups_and_offsets_are_recorded(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=2)
        for partition in (0, 1):
            commit(broker, 5, partition=partition)
        broker.tick()
        broker.tick(MINUTE)
        broker.broker.groups.remove_offsets(BILLING, [("orders", 1)])
        broker.tick(MINUTE)
        broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2)
        broker.tick(MINUTE)
        found = recorded(broker)
        assert [held(found, BILLING, one.at) for one in found] == [{"orders": {0: 5, 1: 5}}, {"orders": {0: 5}}, {}]


@pytest.mark.parametrize("names", [["x" * 32_000 + str(number) for number in range(150)], ["giant"]])
def test_groups_that_do_not_fit_into_a_segment_do_not_stop_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """Names of the greatest length, and a group with very many offsets."""
    monkeypatch.setattr(history, "OFFSETS_OF_A_RECORD", 50)
    with broker_for_groups(tmp_path, {INTERVAL: "5000"}) as broker:
        broker.create_topic(partitions=200)
        for name in names:
            for partition in range(200 if len(names) == 1 else 1):
                broker.broker.groups.offsets.set(name, "orders", partition, OffsetCommitValue(offset=partition), 0)
        broker.tick()
        found = recorded(broker)
        assert {one.group for one in found} == set(names)
        assert all(one.offset_count <= 50 for one in found)
        for name in names:
            assert held(found, name, broker.now_ms) == {"orders": {n: n for n in range(200 if len(names) == 1 else 1)}}


@pytest.mark.parametrize("stop", ["restart", "kill"])
def test_a_start_records_what_a_stop_has_left_out(tmp_path: Path, stop: str) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 5)
        broker.tick()
        broker.tick(MINUTE)
        commit(broker, 9)
        getattr(broker, stop)()
        broker.tick()
        broker.tick()
        assert [(one.complete, one.offsets) for one in recorded(broker)] == [
            (True, {"orders": {0: 5}}),
            (True, {"orders": {0: 9}}),
        ]


def test_a_changed_time_to_keep_applies_to_the_topic_with_the_next_start(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 5)
        broker.tick()
        broker.tick(MINUTE)
        assert broker.broker.metadata.topics[POSITIONS_TOPIC].config.log.retention_ms == (36 * 60 + 2) * MINUTE
        broker.configs[KEPT] = str(10 * MINUTE)
        broker.restart()
        broker.tick()
        assert broker.broker.metadata.topics[POSITIONS_TOPIC].config.log.retention_ms == 17 * MINUTE


def test_passes_and_records_are_made_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "OFFSETS_AT_ONCE", 10)
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=5)
        broker.tick()
        groups = broker.broker.groups
        for number in range(20):
            groups.find_or_make(f"group-{number}")
            groups.commit(f"group-{number}", [("orders", index, OffsetCommitValue(offset=1)) for index in range(5)])
        broker.tick(MINUTE)
        counts = [len(recorded(broker))]
        for _ in range(10):
            broker.tick()
            counts.append(len(recorded(broker)))
        assert counts == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 20]
        broker.restart()
        broker.tick()
        assert len(recorded(broker)) == 22


def test_a_failed_append_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> object:
        raise StorageError("the disk failed", OSError(EIO, "Input/output error"))

    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 5)
        broker.tick()
        with monkeypatch.context() as patch:
            patch.setattr(broker.broker.group_history._topic, "append", refuse)
            broker.tick(MINUTE)
        commit(broker, 6)
        broker.tick()
        assert recorded(broker) == []
        broker.tick(10_000)
        assert [one.offsets for one in recorded(broker)] == [{"orders": {0: 6}}]


Step = st.tuples(st.integers(0, 2), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9)), st.integers(1, 90))


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(Step, max_size=30))
def test_what_a_reader_finds_is_what_groups_held(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int | None, int]]
) -> None:
    """Commits and removals at random; every record that is made tells all of the group as it was just then."""
    with broker_for_groups(tmp_path_factory.mktemp("log"), {KEPT: str(60 * MINUTE)}) as broker:
        broker.create_topic(partitions=4)
        groups, truth = broker.broker.groups, dict[tuple[str, int], dict[str, dict[int, int]]]()
        broker.tick()
        for number, partition, offset, seconds in steps:
            group = f"group-{number}"
            groups.find_or_make(group)
            if offset is None:
                groups.remove_offsets(group, [("orders", partition)])
            else:
                groups.commit(group, [("orders", partition, OffsetCommitValue(offset=offset))])
            for name in ("group-0", "group-1", "group-2"):
                truth[name, broker.now_ms + seconds * 1000] = {
                    topic: {index: value.offset for index, value in sorted(partitions.items())}
                    for topic, partitions in groups.offsets.of_group(name).items()
                }
            broker.tick(seconds * 1000)
        found = recorded(broker)
        for one in found:
            assert held(found, one.group, one.at) == truth[one.group, one.at]
