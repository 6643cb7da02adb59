"""`tailrace group … --at`: where a group stood; which partitions are stuck; what a rewind does to producers."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess

from tailrace.cli.common.connection import Connection
from tailrace.cli.common.topics.offsets import Partition
from tailrace.cli.group import stuck
from tailrace.cli.group.groups import CommittedOffset
from tailrace.cli.group.history import TOPIC, History

Run = Callable[..., tuple[str, str]]
Commit = Callable[..., None]

CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    "tailrace.group.history.interval.ms": "1000",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("history") / "data", configs=CONFIGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def commit(admin: Any) -> Commit:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    def commit(group: str, topic: str, *offsets: int) -> None:
        places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(20)

    return commit


def history(bootstrap: str) -> History:
    connection = Connection(bootstrap)
    return History(connection, connection.metadata(connection.admin()))


@pytest.fixture
def moved(bootstrap: str, unused: str, ten: str, commit: Commit) -> float:
    """A time at which the group `unused` stood at 4 of `ten`. It stands at 8 now, and both are recorded."""
    moments = {}
    for offset in (4, 8):
        commit(unused, ten, offset)
        deadline = time.monotonic() + 30
        while not any(one.offsets == {ten: {0: offset}} for one in _records(bootstrap, unused)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        moments[offset] = time.time()
    return moments[4]


def _records(bootstrap: str, group: str) -> list[Any]:
    found = history(bootstrap)
    return found._records(group) if found.is_kept else []


def at(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


def held(run: Run, group: str, moment: float) -> dict[int, int]:
    found = json.loads(run("group", "show", group, "--at", at(moment), "--json")[0])
    return {row["partition"]: row["committed"] for row in found["partitions"]}


def committed(run: Run, group: str) -> dict[int, int]:
    return {
        row["partition"]: row["committed"] for row in json.loads(run("group", "show", group, "--json")[0])["partitions"]
    }


def test_a_group_is_shown_where_it_stood(run: Run, unused: str, ten: str, moved: float) -> None:
    assert held(run, unused, moved) == {0: 4}
    assert held(run, unused, time.time()) == {0: 8}
    said = run("group", "show", unused, "--at", at(moved))[0].splitlines()
    assert said[0].startswith(f"{unused} at 20")
    assert said[0].endswith(": 1 offset")
    assert said[2].split() == [ten, "0", "4"]


def test_older_than_kept_ends_with_4_and_names_the_oldest(run: Run, bootstrap: str, unused: str, moved: float) -> None:
    oldest = _records(bootstrap, unused)[0].at / 1000
    said = run("group", "show", unused, "--at", "-2h", code=4)[1]
    assert "its oldest recorded position is of" in said
    assert datetime.fromtimestamp(oldest, UTC).isoformat(" ", "seconds") in said
    for verb in (("copy", unused, f"{unused}-2"), ("reset", unused, "--yes")):
        run("group", *verb, "--at", "-2h", code=4)
    assert committed(run, unused) == {0: 8}


def test_a_group_is_copied_from_where_it_stood_even_if_it_was_deleted(run: Run, unused: str, moved: float) -> None:
    target = f"{unused}-copy"
    run("group", "copy", unused, target, "--at", at(moved))
    assert committed(run, target) == {0: 4}
    run("group", "delete", unused, "--yes")
    run("group", "copy", unused, f"{target}-2", "--at", at(moved))
    assert committed(run, f"{target}-2") == {0: 4}


def test_a_group_is_reset_to_where_it_stood(run: Run, unused: str, moved: float) -> None:
    said = run("group", "reset", unused, "--at", at(moved), "--dry-run")[0]
    assert "repeats 4 messages" in said
    assert committed(run, unused) == {0: 8}
    run("group", "reset", unused, "--at", at(moved), "--yes")
    assert committed(run, unused) == {0: 4}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("show", "some", "--at", "whenever"), "--at: 'whenever' is not a time"),
        (("reset", "some", "--at", "-2h", "--to", "latest"), "where to?"),
    ],
)
def test_options_that_make_no_sense_end_with_2(run: Run, arguments: tuple[str, ...], why: str) -> None:
    assert why in run("group", *arguments, code=2)[1]


def test_unrecorded_groups_end_with_4(run: Run, unused: str, moved: float) -> None:
    assert "no position of group" in run("group", "show", f"{unused}-other", "--at", "-1m", code=4)[1]


def test_brokers_without_history_are_named(run: Run, own_broker: Callable[..., Any], tmp_path: Path) -> None:
    with own_broker(tmp_path / "data") as (address, _):
        said = run("group", "show", "some", "--at", "-1m", "-b", address, code=1)[1]
        assert f"there is no topic {TOPIC}" in said


def test_a_partition_is_stuck_while_messages_wait_and_no_commit_moves(
    run: Run, bootstrap: str, unused: str, ten: str, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(bootstrap)
    row: Any = {"topic": ten, "partition": 0, "committed": 8, "start": 0, "lag": 2}
    commits = {Partition(ten, 0): CommittedOffset(8)}
    stuck.add([row], connection, history(bootstrap), unused, commits)
    assert row["stuck_seconds"] is None, "only from ten minutes on"
    monkeypatch.setattr(stuck, "STUCK_SECONDS", 0)
    stuck.add([row], connection, history(bootstrap), unused, commits)
    found = dict(row)
    assert 0 <= found["stuck_seconds"] <= time.time() - moved + 1
    assert row["stuck_longer"] is False
    (line,) = stuck.remarks([{**row, "stuck_seconds": 7500}])
    assert line == f"{ten} [0]: stuck at offset 8 for 2 h 5 min: 2 messages to read, and no commit has moved it"
    for change in ({"lag": 0}, {"committed": 9}):
        other = {**row, **change}
        stuck.add(
            [other], connection, history(bootstrap), unused, {Partition(ten, 0): CommittedOffset(other["committed"])}
        )
        assert other["stuck_seconds"] is None


def test_a_rewind_that_would_stop_producers_says_so(
    run: Run, bootstrap: str, unused: str, commit: Commit, admin: Any
) -> None:
    from confluent_kafka import Producer

    from tailrace.cli.common.client import NewTopic

    other = f"other-{unused}"
    configs = {
        "tailrace.backlog.policy": "reject",
        "tailrace.backlog.groups": f"{other},{unused}",
        "tailrace.backlog.bytes": "20000",
        "tailrace.backlog.ms": "3600000",
        "segment.ms": "1",
    }
    topic = f"limited-{unused}"
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(20)
    commit(unused, topic, 0)
    producer = Producer({"bootstrap.servers": bootstrap})
    old = int(time.time() * 1000) - 7_200_000
    for number in range(20):
        producer.produce(topic, b"x" * 5000, timestamp=old if number < 2 else 0)
        producer.flush(20)
        commit(unused, topic, number + 1)
        commit(other, topic, number + 1)
    deadline = time.monotonic() + 20
    while True:
        said = run("group", "reset", unused, "--shift", "-19", "--dry-run")[1]
        if said and "is not known" not in said:
            break
        assert time.monotonic() < deadline
    lines = said.splitlines()
    assert len(lines) == 2
    assert f"{topic} [0]: producers would be refused (policy reject): unread are about 9" in lines[0]
    assert "the limit is 20.0 KB" in lines[0]
    assert "the first unread message is 7,2" in lines[1]
    assert run("group", "reset", unused, "--shift", "-2", "--dry-run")[1] == ""


def test_a_rewind_is_weighed_where_a_topic_limits_bytes_alone(
    run: Run, unused: str, commit: Commit, admin: Any
) -> None:
    from tailrace.cli.common.client import NewTopic

    configs = {
        "tailrace.backlog.policy": "reject",
        "tailrace.backlog.groups": unused,
        "tailrace.backlog.bytes": "20000",
    }
    topic = f"limited-{unused}"
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(20)
    run("produce", topic, given=b"a\nb\n")
    commit(unused, topic, 2)
    assert run("group", "reset", unused, "--to", "earliest", "--dry-run")[1] == (
        f"tailrace: {topic} [0]: producers would be refused (policy reject) if these messages are larger than 20.0 KB; "
        "their size is not known\n"
    )
