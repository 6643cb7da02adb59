"""`tailrace transaction`, run as a user runs it, against a broker with transactional producers."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

Run = Callable[..., tuple[str, str]]
NewTopic = Callable[..., str]
Begin = Callable[..., Producer]


@pytest.fixture
def begin(bootstrap: str, unused: str) -> Iterator[Begin]:
    """Begins a transaction: a producer of a transactional id that has written a message to each partition."""
    begun: list[Producer] = []

    def begin(topic: str, partitions: int = 1, name: str = unused, timeout_ms: int = 60_000) -> Producer:
        settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms, "log_level": 0}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        producer.init_transactions(30)
        begun.append(producer)
        write(producer, topic, partitions)
        return producer

    yield begin
    for producer in begun:
        producer.purge()


def write(producer: Producer, topic: str, partitions: int = 1) -> None:
    producer.begin_transaction()
    for number in range(partitions):
        producer.produce(topic, "text", partition=number)
    assert producer.flush(20) == 0


def one_of(run: Run, name: str, *options: str) -> dict[str, Any]:
    (row,) = (row for row in json.loads(run("transaction", "list", "--json", *options)[0]) if row["id"] == name)
    return dict(row)


def names_of(run: Run, *options: str) -> list[str]:
    return [row["id"] for row in json.loads(run("transaction", "list", "--json", *options)[0])]


def in_the_end(run: Run, name: str, state: str) -> dict[str, Any]:
    """Kafka writes the last record of a transaction after its response."""
    deadline = time.monotonic() + 30
    while (row := one_of(run, name))["state"] != state:
        assert time.monotonic() < deadline, row
    return row


def committed(bootstrap: str, topic: str) -> list[str]:
    """The messages that a consumer of committed records reads, up to where it has to stop."""
    settings = {"group.id": "any", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append((message.value() or b"").decode())


def test_the_list_has_what_there_is_to_know_of_each_id(
    run: Run, new_topic: NewTopic, begin: Begin, unused: str
) -> None:
    before_ms = time.time_ns() // 1_000_000
    producer = begin(new_topic(3), partitions=3, timeout_ms=50_000)
    row = one_of(run, unused)
    producer_id, epoch, started_ms = row["producer_id"], row["producer_epoch"], row["started_ms"]
    assert before_ms <= started_ms <= time.time_ns() // 1_000_000
    assert 0 <= row["age_ms"] <= time.time_ns() // 1_000_000 - started_ms
    assert row == {
        "id": unused,
        "state": "ongoing",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "timeout_ms": 50_000,
        "started_ms": started_ms,
        "age_ms": row["age_ms"],
        "partitions": 3,
    }
    producer.commit_transaction(20)
    ended = in_the_end(run, unused, "complete_commit")
    assert (ended["producer_id"], ended["partitions"], ended["age_ms"]) == (producer_id, 0, None)


def test_the_list_is_narrowed_by_state_and_age(run: Run, new_topic: NewTopic, begin: Begin, unused: str) -> None:
    topic = new_topic()
    begin(topic)
    begin(topic, name=f"{unused}-ended").abort_transaction(20)
    in_the_end(run, f"{unused}-ended", "complete_abort")
    assert {unused, f"{unused}-ended"} <= set(names_of(run))
    assert unused in names_of(run, "--state", "ongoing", "--state", "empty")
    assert f"{unused}-ended" not in names_of(run, "--state", "ongoing", "--state", "empty")
    assert f"{unused}-ended" in names_of(run, "--state", "complete_abort")
    assert unused in names_of(run, "--older-than", "1ms")
    assert f"{unused}-ended" not in names_of(run, "--older-than", "1ms"), "it is not open"
    assert unused not in names_of(run, "--older-than", "1h30m")
    run("transaction", "list", "--state", "hanging", code=2)
    assert "takes a time" in run("transaction", "list", "--older-than", "soon", code=2)[1]


def on_a_terminal(environment: dict[str, str], *arguments: str) -> list[str]:
    ours, theirs = pty.openpty()
    terminal = {**environment, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tailrace", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=theirs, env=terminal, timeout=50)
    os.close(theirs)
    said = re.sub(r"\x1b\[[0-9;]*m", "", os.read(ours, 100_000).decode())
    os.close(ours)
    assert done.returncode == 0
    return said.splitlines()


def test_people_can_read_it_in_80_columns(
    run: Run, new_topic: NewTopic, begin: Begin, unused: str, environment: dict[str, str]
) -> None:
    begin(new_topic(), timeout_ms=90_000)
    lines = on_a_terminal(environment, "transaction", "list")
    assert lines[0].split() == ["ID", "STATE", "OPEN", "FOR", "TIMEOUT", "PARTITIONS", "PRODUCER"]
    assert any(line.startswith(unused) and "ongoing" in line and "1 min 30 s" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_one_transaction_is_shown_with_where_it_holds_consumers_back(
    run: Run, new_topic: NewTopic, begin: Begin, unused: str
) -> None:
    topic = new_topic(2)
    begin(topic, name=f"{unused}-before").commit_transaction(20)  # its message, and its marker
    producer = begin(topic, partitions=2)
    shown = json.loads(run("transaction", "show", unused, "--json")[0])
    assert shown["state"] == "ongoing"
    assert shown["partitions"] == [
        {"topic": topic, "partition": 0, "first_offset": 2, "last_stable_offset": 2},
        {"topic": topic, "partition": 1, "first_offset": 0, "last_stable_offset": 0},
    ]
    said = run("transaction", "show", unused)[0]
    assert said.startswith(f"{unused}  ongoing, open for ")
    assert f"tailrace transaction abort {unused}" in said
    producer.commit_transaction(20)
    in_the_end(run, unused, "complete_commit")
    said = run("transaction", "show", unused)[0]
    assert said.startswith(f"{unused}  complete_commit\n")
    assert "abort" not in said


def test_a_transaction_is_shown_without_partitions_that_are_gone(
    run: Run, new_topic: NewTopic, begin: Begin, unused: str, admin: Any
) -> None:
    topic, gone = new_topic(), new_topic()
    producer = begin(topic)
    producer.produce(gone, "text")
    assert producer.flush(20) == 0
    admin.delete_topics([gone])[gone].result(20)
    partitions = json.loads(run("transaction", "show", unused, "--json")[0])["partitions"]
    offsets = {row["topic"]: (row["first_offset"], row["last_stable_offset"]) for row in partitions}
    assert offsets.pop(topic) == (0, 0)
    assert offsets in ({}, {gone: (None, None)}), "Kafka may leave it out"


def test_an_abort_hides_the_messages_and_fences_the_producer(
    run: Run, new_topic: NewTopic, begin: Begin, unused: str, bootstrap: str
) -> None:
    topic = new_topic()
    producer = begin(topic)
    row = one_of(run, unused)
    planned = json.loads(run("transaction", "abort", unused, "--dry-run", "--json")[0])
    assert planned == {
        "id": unused, "aborted": False, "producer_id": row["producer_id"], "producer_epoch": row["producer_epoch"],
    }  # fmt: skip
    assert "would abort" in run("transaction", "abort", unused, "--dry-run")[0]
    assert "no terminal" in run("transaction", "abort", unused, code=5)[1]
    assert one_of(run, unused)["state"] == "ongoing"
    aborted = json.loads(run("transaction", "abort", unused, "--yes", "--json")[0])
    now = one_of(run, unused)
    assert aborted == {
        "id": unused, "aborted": True, "producer_id": now["producer_id"], "producer_epoch": now["producer_epoch"],
    }  # fmt: skip
    assert (now["producer_id"], now["producer_epoch"]) > (row["producer_id"], row["producer_epoch"])
    assert (now["state"], now["timeout_ms"]) == ("empty", row["timeout_ms"])
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(20)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    assert committed(bootstrap, topic) == []
    begin(topic).commit_transaction(20)
    assert committed(bootstrap, topic) == ["text"]


def test_what_is_not_ongoing_is_not_aborted(run: Run, new_topic: NewTopic, begin: Begin, unused: str) -> None:
    assert f"no transactional id {unused}" in run("transaction", "show", unused, code=4)[1]
    run("transaction", "abort", unused, "--yes", code=4)
    begin(new_topic()).commit_transaction(20)
    in_the_end(run, unused, "complete_commit")
    for option in ("--yes", "--dry-run"):
        assert "its state is complete_commit" in run("transaction", "abort", unused, option, code=5)[1]


def asked(environment: dict[str, str], name: str, answer: Callable[[], str]) -> tuple[int, str]:
    """Runs `abort` in a terminal, calls `answer` when it has asked, and types that. Returns exit code and output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tailrace", "transaction", "abort", name]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(ours, 10_000)
        os.write(ours, f"{answer()}\n".encode())
        try:
            while chunk := os.read(ours, 10_000):
                said += chunk
        except OSError:  # the other side is closed
            pass
        code = process.wait(50)
    os.close(ours)
    return code, said.decode()


def test_an_abort_asks_first(
    run: Run, new_topic: NewTopic, begin: Begin, unused: str, environment: dict[str, str]
) -> None:
    begin(new_topic())
    code, said = asked(environment, unused, lambda: "n")
    assert (code, one_of(run, unused)["state"]) == (5, "ongoing")
    assert "with 1 partition? Its producer is fenced." in said
    code, said = asked(environment, unused, lambda: "y")
    assert (code, one_of(run, unused)["state"]) == (0, "empty")
    assert f"aborted the transaction of {unused}" in said


def test_the_next_transaction_is_not_aborted_for_one_that_has_ended(
    run: Run, new_topic: NewTopic, begin: Begin, unused: str, environment: dict[str, str]
) -> None:
    topic = new_topic()
    producer = begin(topic)

    def answer() -> str:
        producer.commit_transaction(20)
        write(producer, topic)
        return "y"

    code, said = asked(environment, unused, answer)
    assert (code, one_of(run, unused)["state"]) == (5, "ongoing")
    assert "has begun another" in said
