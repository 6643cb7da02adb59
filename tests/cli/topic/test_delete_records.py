"""`tailrace topic delete-records`, run as a user runs it, against a broker."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

Run = Callable[..., tuple[str, str]]
NewTopic = Callable[..., str]


def starts(run: Run, name: str) -> list[int]:
    return [part["start_offset"] for part in json.loads(run("topic", "show", name, "--json")[0])["partitions"]]


def fill(bootstrap: str, name: str, partitions: int = 1, timestamp: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(partitions):
        for number in range(10):
            producer.produce(
                name, str(number), partition=partition, timestamp=timestamp and timestamp + number * 60_000
            )
    assert producer.flush(20) == 0


def test_records_before_an_offset_are_deleted(run: Run, ten: str) -> None:
    assert "nothing was done" in run("topic", "delete-records", ten, "--before", 4, code=5)[1]
    said, warned = run("topic", "delete-records", ten, "--before", 4, "--dry-run")
    assert said.splitlines()[1].split() == [ten, "0", "0", "4", "10", "4"]
    assert "nothing was deleted" in warned
    assert starts(run, ten) == [0]
    assert f"{ten} [0] begins at offset 4" in run("topic", "delete-records", ten, "--before", 4, "--yes")[0]
    assert starts(run, ten) == [4]
    assert run("tail", ten, "--from", "earliest", "--no-follow")[0].split() == list("456789")


def test_partitions_can_be_chosen_and_records_at_the_end_kept(run: Run, bootstrap: str, new_topic: NewTopic) -> None:
    name = new_topic(partitions=3)
    fill(bootstrap, name, 3)
    run("topic", "delete-records", f"{name}:0,2", "--before", "last:3", "--yes")
    assert starts(run, name) == [7, 0, 7]
    answer = json.loads(run("topic", "delete-records", name, "--before", "latest", "--yes", "--json")[0])
    assert [(row["partition"], row["new_start_offset"], row["messages"]) for row in answer["partitions"]] == [
        (0, 10, 3), (1, 10, 10), (2, 10, 3),
    ]  # fmt: skip
    assert starts(run, name) == [10, 10, 10]


def test_records_before_a_time_are_deleted(run: Run, bootstrap: str, new_topic: NewTopic) -> None:
    name = new_topic()
    first = int(time.time() * 1000) - 3_600_000
    fill(bootstrap, name, timestamp=first)
    at = datetime.fromtimestamp((first + 6 * 60_000) / 1000, UTC).isoformat()
    run("topic", "delete-records", name, "--before", at, "--yes")
    assert starts(run, name) == [6]


def test_what_cannot_be_deleted_is_refused_and_nothing_is(run: Run, ten: str, new_topic: NewTopic, unused: str) -> None:
    assert "ends at offset 10" in run("topic", "delete-records", ten, "--before", 11, "--yes", code=5)[1]
    assert "there is no partition" in run("topic", "delete-records", f"{ten}:1", "--before", 1, "--yes", code=4)[1]
    run("topic", "delete-records", unused, "--before", 1, "--yes", code=4)
    run("topic", "delete-records", ten, "--before", "whenever", "--yes", code=2)
    run("topic", "delete-records", ten, code=2)
    compacted = new_topic(cleanup_policy="compact")
    run("produce", compacted, "--json", given=b'{"key": "a", "value": "1"}\n')
    warned = run("topic", "delete-records", compacted, "--before", "latest", "--yes", code=5)[1]
    assert f"keeps its messages: cleanup.policy of {compacted} is without `delete`" in warned
    internal = "__tailrace_metadata"
    warned = run("topic", "delete-records", internal, "--before", 1, "--yes", code=5)[1]
    assert f"keeps its messages: {internal} is an internal topic" in warned
    assert starts(run, ten) == [0]


def test_a_start_that_lies_behind_the_offset_stays(
    run: Run, ten: str, delete_before: Callable[[str, int], Any]
) -> None:
    delete_before(ten, 5)
    assert "nothing is to be deleted" in run("topic", "delete-records", ten, "--before", 3, "--yes")[1]
    assert starts(run, ten) == [5]
