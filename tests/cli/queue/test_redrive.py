"""`tailrace queue redrive`: dead letters are sent again, each once."""

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.cli.common.messages import Row
from tailrace.cli.queue import dead_letters
from tailrace.cli.queue.dead_letters import DeadLetter

Run = Callable[..., tuple[str, str]]
NewTopic = Callable[..., str]
Write = Callable[..., None]


def from_topic(topic: str, partition: int = 0) -> list[tuple[str, bytes]]:
    facts = {"topic": topic, "partition": str(partition), "offset": "7", "group": "g", "reason": "attempts"}
    return [(f"__dlq.errors.{name}", value.encode()) for name, value in facts.items()]


def read(run: Run, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("tail", topic, "--no-follow", "--json")[0].splitlines()]


@pytest.fixture
def dlq(new_topic: NewTopic) -> str:
    return new_topic(name="dlq")


def test_dead_letters_go_to_where_they_came_from_as_they_were(
    run: Run, new_topic: NewTopic, dlq: str, write: Write
) -> None:
    source = new_topic(partitions=3)
    write(dlq, "poison", key="ann", headers=[("mine", b"kept"), *from_topic(source, 2)])
    said, warned = run("queue", "redrive", dlq, "--yes")
    assert said.splitlines() == [f"to be sent: 1 dead letter to {source}", "sent 1 dead letter again"]
    assert f"every group that reads {source} gets these messages once more; --to TOPIC sends them elsewhere" in warned
    (found,) = read(run, source)
    assert (found["partition"], found["key"], found["value"]) == (2, "ann", "poison")
    assert found["headers"] == [["mine", "kept"]]
    assert len(read(run, dlq)) == 1


def test_each_dead_letter_is_sent_once(run: Run, new_topic: NewTopic, dlq: str, write: Write) -> None:
    source = new_topic()
    write(dlq, "one", "two", headers=from_topic(source))
    run("queue", "redrive", dlq, "--yes")
    assert "has no dead letters that were not sent again" in run("queue", "redrive", dlq, "--yes")[1]
    write(dlq, "three", headers=from_topic(source))
    run("queue", "redrive", dlq, "--yes")
    assert [row["value"] for row in read(run, source)] == ["one", "two", "three"]


def test_dead_letters_may_go_elsewhere_and_some_at_a_time(
    run: Run, new_topic: NewTopic, dlq: str, write: Write
) -> None:
    source, other = new_topic(), new_topic(name="other")
    write(dlq, *map(str, range(5)), headers=from_topic(source))
    said, warned = run("queue", "redrive", dlq, "--to", other, "--max", 2, "--yes")
    assert f"2 dead letters to {other}" in said
    assert "once more" not in warned
    run("queue", "redrive", dlq, "--to", other, "--rate", 1000, "--yes")
    assert [row["value"] for row in read(run, other)] == list("01234")
    assert read(run, source) == []


def test_a_dry_run_and_a_refusal_send_nothing(run: Run, new_topic: NewTopic, dlq: str, write: Write) -> None:
    source = new_topic()
    write(dlq, "one", headers=from_topic(source))
    assert run("queue", "redrive", dlq, "--dry-run")[0] == f"would send 1 dead letter to {source}\n"
    assert "there is no terminal to ask at" in run("queue", "redrive", dlq, code=5)[1]
    assert read(run, source) == []
    found = json.loads(run("queue", "redrive", dlq, "--yes", "--json")[0])
    assert found == {
        "dlq": dlq,
        "dry_run": False,
        "to": [{"topic": source, "messages": 1}],
        "messages": 1,
        "sent": 1,
        "without_payload": 0,
    }


def test_a_message_that_does_not_say_where_it_came_from_needs_a_target(
    run: Run, new_topic: NewTopic, dlq: str, write: Write
) -> None:
    write(dlq, "whatever")
    assert "no header __dlq.errors.topic" in run("queue", "redrive", dlq, "--yes", code=5)[1]
    target = new_topic()
    run("queue", "redrive", dlq, "--to", target, "--yes")
    assert [row["value"] for row in read(run, target)] == ["whatever"]


def test_dead_letters_without_payload_are_left_out(run: Run, new_topic: NewTopic, dlq: str, write: Write) -> None:
    source = new_topic()
    write(dlq, None, "one", headers=from_topic(source))
    said, warned = run("queue", "redrive", dlq, "--yes")
    assert "sent 1 dead letter again" in said
    assert "1 dead letter without a payload cannot be sent" in warned
    assert [row["value"] for row in read(run, source)] == ["one"]


@pytest.mark.parametrize("arguments", [("unknown-dlq",), ("{dlq}", "--to", "unknown-topic"), ("{dlq}",)])
def test_topics_that_are_not_there_end_with_4(
    run: Run, dlq: str, write: Write, arguments: tuple[str, ...], unused: str
) -> None:
    write(dlq, "one", headers=from_topic(unused))
    run("queue", "redrive", *(argument.format(dlq=dlq) for argument in arguments), "--yes", code=4)


def test_many_dead_letters_take_several_transactions(run: Run, new_topic: NewTopic, dlq: str, write: Write) -> None:
    first, second = new_topic(partitions=2), new_topic(name="second")
    write(dlq, *map(str, range(700)), headers=from_topic(first))
    write(dlq, *map(str, range(700)), headers=from_topic(first, 1))
    write(dlq, "x" * 600_000, "y" * 600_000, headers=from_topic(second))
    assert "sent 1,402 dead letters again" in run("queue", "redrive", dlq, "--yes")[0]
    rows = read(run, first)
    for partition in range(2):
        assert [row["value"] for row in rows if row["partition"] == partition] == list(map(str, range(700)))
    assert [len(row["value"]) for row in read(run, second)] == [600_000, 600_000]


def test_what_a_queue_gave_up_is_worked_on_again(
    run: Run, queue: Callable[..., tuple[str, str]], is_ours: bool, unused: str
) -> None:
    if not is_ours:
        pytest.skip("Kafka has dead letters from 4.4 on")
    name, topic = queue("good", "poison", options=("--dead-letter", f"dlq.{unused}"))
    work = ("queue", "work", name, topic, "--drain", "--", "sh", "-c")
    run(*work, "! grep -q poison || exit 65")
    said, _ = run("queue", "redrive", f"dlq.{unused}", "--yes")
    assert said.splitlines()[-1] == "sent 1 dead letter again"
    assert run(*work, "cat")[0] == "poison"
    assert [row["value"] for row in read(run, f"dlq.{unused}")] == ["poison"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_dead_letter_is_sent_once_however_often_it_is_killed(
    run: Run, new_topic: NewTopic, dlq: str, write: Write, start: Callable[..., Any]
) -> None:
    source, chance = new_topic(), random.Random(29)
    write(dlq, *map(str, range(3000)), headers=from_topic(source))
    for _ in range(12):
        redrive = start("queue", "redrive", dlq, "--rate", 400, "--yes")
        redrive.stdout.readline()
        time.sleep(chance.uniform(0, 1.5))
        redrive.kill()
        redrive.wait()
    run("queue", "redrive", dlq, "--yes")
    assert [row["value"] for row in read(run, source)] == list(map(str, range(3000)))


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_by_kafkas_clients(key: bytes, hashed: int) -> None:
    assert dead_letters.murmur2(key) == hashed & 0xFFFFFFFF


def test_the_partition_of_another_topic_is_that_of_the_key_or_the_next() -> None:
    keyed = dead_letters.read(Row(b"abc", b"", (("__dlq.errors.topic", b"t"), ("__dlq.errors.partition", b"5"))))
    assert dead_letters.partition_in(keyed, "t", 6, 0) == 5
    assert dead_letters.partition_in(keyed, "t", 5, 0) == 479470107 % 5
    assert dead_letters.partition_in(keyed, "u", 6, 0) == 479470107 % 6
    assert [dead_letters.partition_in(DeadLetter(None, b"", (), None, None), "u", 3, n) for n in range(4)] == [
        0,
        1,
        2,
        0,
    ]
