"""`tailrace topic`, run as a user runs it, against a broker."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., tuple[str, str]]
NewTopic = Callable[..., str]


def shown(run: Run, name: str, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("topic", "show", name, "--json", *options)[0])
    return found


def test_a_topic_is_created_shown_listed_and_deleted(run: Run, unused: str) -> None:
    assert run("topic", "create", unused, "-p", 3, "--config", "retention.ms=86400000")[0] == (
        f"created {unused} with 3 partitions\n"
    )
    found = shown(run, unused)
    assert (found["name"], found["messages"], len(found["id"])) == (unused, 0, 22)
    assert [part["partition"] for part in found["partitions"]] == [0, 1, 2]
    assert found["configs"]["retention.ms"] == {"value": "86400000", "source": "topic"}
    assert "segment.bytes" not in found["configs"]
    assert "segment.bytes" in shown(run, unused, "--all-configs")["configs"]
    (row,) = json.loads(run("topic", "list", unused, "--json")[0])
    assert (row["name"], row["partitions"], row["messages"]) == (unused, 3, 0)
    assert run("topic", "delete", unused, "--yes")[0] == f"deleted {unused}\n"
    run("topic", "show", unused, code=4)
    assert json.loads(run("topic", "list", unused, "--json")[0]) == []


def test_a_topic_that_is_there_is_refused_unless_that_is_fine(run: Run, new_topic: NewTopic) -> None:
    name = new_topic(partitions=2)
    assert name in run("topic", "create", name, code=5)[1]
    assert run("topic", "create", name, "--if-not-exists")[0] == f"{name} exists already, with 2 partitions\n"


def test_a_topic_that_would_be_created_is_not(run: Run, unused: str) -> None:
    assert run("topic", "create", unused, "-p", 2, "--dry-run")[0] == f"would create {unused} with 2 partitions\n"
    run("topic", "show", unused, code=4)


def test_what_the_broker_refuses_is_told_in_its_words(run: Run, unused: str) -> None:
    assert "retention.ms" in run("topic", "create", unused, "--config", "retention.ms=soon", code=5)[1]
    run("topic", "create", "no good name", code=5)
    assert "KEY=VALUE" in run("topic", "create", unused, "--config", "retention.ms", code=2)[1]


def test_one_topic_that_cannot_be_created_does_not_hinder_the_others(
    run: Run, new_topic: NewTopic, unused: str
) -> None:
    taken = new_topic()
    said, warned = run("topic", "create", taken, unused, "-p", 1, code=5)
    assert said == f"created {unused} with 1 partition\n"
    assert f"{taken} is not created" in warned


def test_people_get_a_table(run: Run, new_topic: NewTopic) -> None:
    name = new_topic(partitions=2)
    run("produce", name, given=b"1\n2\n3\n")
    heading, row = run("topic", "list", name)[0].splitlines()
    assert heading.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "MESSAGES"]
    assert row.split() == [name, "2", "1", "3"]
    assert f"{name}  2 partitions, 3 messages" in run("topic", "show", name)[0]


def test_topics_are_listed_by_pattern_and_by_the_alias(run: Run, new_topic: NewTopic) -> None:
    first, second = (new_topic(name="listed") for _ in range(2))
    rows = json.loads(run("topic", "ls", "listed-.*", "--json")[0])
    assert {first, second} <= {row["name"] for row in rows}
    assert all(row["name"].startswith("listed-") for row in rows)
    assert "did you mean 'listed-.*'" in run("topic", "list", "listed-*")[1]


def test_a_topic_is_altered_and_what_changed_is_told(run: Run, new_topic: NewTopic) -> None:
    name = new_topic()
    change = ("topic", "alter", name, "--partitions", 3, "--set", "retention.ms=1000000")
    for dry in (True, False):
        said = run(*change, *(["--dry-run"] if dry else []))[0]
        assert said.splitlines()[0] == f"{'would change' if dry else 'changed'} {name}"
        assert "  partitions: 1 → 3" in said
        assert "  retention.ms: 604800000 → 1000000" in said
    found = shown(run, name)
    assert len(found["partitions"]) == 3
    assert found["configs"]["retention.ms"]["value"] == "1000000"
    assert "retention.ms: 1000000 →" in run("topic", "alter", name, "--unset", "retention.ms")[0]
    assert "retention.ms" not in shown(run, name)["configs"]


def test_changes_that_cannot_be_made_are_refused_and_nothing_is_changed(run: Run, new_topic: NewTopic) -> None:
    name = new_topic(partitions=2)
    assert "never fewer" in run("topic", "alter", name, "-p", 1, code=5)[1]
    assert "did you mean retention.ms" in run("topic", "alter", name, "--set", "retentoin.ms=1", code=5)[1]
    run("topic", "alter", name, "-p", 4, "--set", "retention.ms=soon", code=5)
    run("topic", "alter", name, code=2)
    assert len(shown(run, name)["partitions"]) == 2


def test_nothing_is_deleted_unless_somebody_says_yes(run: Run, new_topic: NewTopic) -> None:
    name = new_topic()
    assert run("topic", "delete", name, "--dry-run")[0] == f"would delete {name}: 1 partition, 0 messages\n"
    assert "--yes" in run("topic", "delete", name, code=5)[1]
    assert shown(run, name)
    run("topic", "rm", name, "--yes")
    run("topic", "show", name, code=4)


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 5), (b"y\n", 0)])
def test_on_a_terminal_the_question_is_asked(
    run: Run, new_topic: NewTopic, environment: dict[str, str], answer: bytes, code: int
) -> None:
    name = new_topic()
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    command = [sys.executable, "-m", "tailrace", "topic", "delete", name]
    done = subprocess.run(command, stdin=theirs, capture_output=True, env=environment)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == code
    assert b"Delete 1 topic? This cannot be undone." in done.stderr
    run("topic", "show", name, code=0 if code else 4)


def test_an_interrupted_question_changes_nothing(run: Run, new_topic: NewTopic, environment: dict[str, str]) -> None:
    name = new_topic()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tailrace", "topic", "delete", name]
    with subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE, env=environment) as asking:
        assert asking.stderr is not None
        said = b""
        while b"[y/N]" not in said:
            said += os.read(asking.stderr.fileno(), 4096)
        while asking.poll() is None:  # one that comes right before the read is seen only after it
            asking.send_signal(signal.SIGINT)
            time.sleep(0.1)
        rest = asking.stderr.read()
    os.close(theirs)
    os.close(ours)
    assert (asking.returncode, rest.splitlines()[-1]) == (130, b"tailrace: interrupted: nothing was done")
    assert shown(run, name)


def test_one_topic_that_is_not_there_keeps_all_from_being_deleted(run: Run, new_topic: NewTopic, unused: str) -> None:
    name = new_topic()
    run("topic", "delete", name, unused, "--yes", code=4)
    assert shown(run, name)


def test_a_mistyped_topic_gets_a_suggestion(run: Run, new_topic: NewTopic) -> None:
    name = new_topic(name="suggested")
    assert f"did you mean {name}" in run("topic", "show", name.replace("gg", "g"), code=4)[1]


def test_where_no_broker_is_all_verbs_end_with_3_and_say_what_to_do(run: Run, start: Callable[..., Any]) -> None:
    nowhere = ("-b", "127.0.0.1:1")
    verbs = [("topic", "list"), ("topic", "show", "a"), ("produce", "a"), ("tail", "a"), ("group", "list")]
    verbs += [("lag",), ("alert", "list"), ("config", "show"), ("quota", "show")]
    for process in [start(*verb, *nowhere) for verb in verbs]:
        said, warned = process.communicate(timeout=20)
        assert (process.returncode, said) == (3, b"")
        assert warned.decode().startswith("tailrace: no broker answers at 127.0.0.1:1 (Connection refused)")
        assert b"tailrace serve" in warned


def test_a_verb_fails_at_once_if_all_addresses_refuse_and_waits_if_one_is_silent(
    run: Run, start: Callable[..., Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        waiting = start("topic", "list", "-b", f"127.0.0.1:1,127.0.0.1:{silent.getsockname()[1]}")
        run("topic", "list", "-b", "localhost:1,127.0.0.1:2", code=3)
        assert waiting.poll() is None  # it began earlier, and waits for some seconds
        assert waiting.wait(30) == 3


def test_properties_of_the_client_can_be_given_and_a_wrong_one_is_a_mistake_of_usage(run: Run) -> None:
    run("topic", "list", "-X", "socket.timeout.ms=10000")
    assert "no.such" in run("topic", "list", "-X", "no.such=1", code=2)[1]


def test_times_and_sizes_may_have_units_and_the_broker_gets_plain_numbers(run: Run, unused: str) -> None:
    run("topic", "create", unused, "--config", "retention.ms=1.5h", "--config", "segment.bytes=64MiB")
    assert shown(run, unused)["configs"]["retention.ms"]["value"] == "5400000"
    assert shown(run, unused)["configs"]["segment.bytes"]["value"] == str(64 << 20)
    run("topic", "alter", unused, "--set", "retention.ms=1 h", "--config", "segment.bytes=1.5GB")
    assert shown(run, unused)["configs"]["retention.ms"]["value"] == "3600000"
    assert shown(run, unused)["configs"]["segment.bytes"]["value"] == "1500000000"
    assert "retention.ms" in run("topic", "alter", unused, "--set", "retention.ms=soon", code=5)[1]


def test_the_only_replication_factor_is_taken_and_others_are_refused_by_the_broker(run: Run, unused: str) -> None:
    run("topic", "create", unused, "--replication-factor", 1)
    _, warned = run("topic", "create", f"{unused}-3", "--replication-factor", 3, code=5)
    assert f"{unused}-3 is not created: " in warned
    assert "replication factor" in warned.lower()


def test_more_partitions_than_clients_can_ask_for_are_a_mistake_of_usage(run: Run, new_topic: NewTopic) -> None:
    for verb in (("create", "many"), ("alter", new_topic())):
        assert "100000000 is not in the range" in run("topic", *verb, "-p", 100_000_000, code=2)[1]


def test_creation_and_alteration_are_told_to_programs_in_json(run: Run, new_topic: NewTopic, unused: str) -> None:
    there = new_topic()
    said, warned = run("topic", "create", unused, there, "-p", 2, "--json", code=5)
    assert json.loads(said) == [{"name": unused, "partitions": 2, "created": True, "exists": False}]
    assert "already exists" in warned
    said, _ = run("topic", "create", there, "--if-not-exists", "--json")
    assert json.loads(said) == [{"name": there, "partitions": 1, "created": False, "exists": True}]
    said, _ = run("topic", "alter", unused, "-p", 3, "--set", "retention.ms=1h", "--json")
    partitions, retention = json.loads(said)["changes"]
    assert partitions == {"name": "partitions", "from": 2, "to": 3}
    assert (retention["name"], retention["to"]) == ("retention.ms", "3600000")
