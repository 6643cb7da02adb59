"""`tailrace queue create, list, show, peek, purge and set`, run as a user runs them, against a broker."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., tuple[str, str]]
NewTopic = Callable[..., str]
Queue = Callable[..., tuple[str, str]]
Shown = Callable[[str], dict[str, Any]]
Write = Callable[..., None]


def backlog(shown: dict[str, Any]) -> int:
    return sum(row["backlog"] for row in shown["topics"])


def test_a_queue_is_made_of_a_topic_with_what_is_in_it(run: Run, ten: str, unused: str, shown: Shown) -> None:
    said, _ = run("queue", "create", unused, ten)
    assert said.splitlines()[0] == f"created queue {unused} on {ten}, with 10 messages to work on"
    found = shown(unused)
    assert (found["name"], found["state"], found["members"], found["dead_letter"]) == (unused, "empty", 0, None)
    configs = found["configs"]
    assert configs["share.delivery.count.limit"] == "5"
    assert configs["share.record.lock.duration.ms"] == "30000"
    assert configs["share.auto.offset.reset"] == "earliest"
    (row,) = found["topics"]
    assert (row["topic"], row["partition"], row["start"], row["end"], row["backlog"]) == (ten, 0, 0, 10, 10)
    assert row["rate"] == 0


def test_a_queue_has_all_the_keys_that_were_promised(run: Run, ten: str, unused: str, shown: Shown) -> None:
    run("queue", "create", unused, ten)
    found = shown(unused)
    assert list(found) == ["name", "state", "members", "dead_letter", "configs", "topics"]
    names = "topic partition start end backlog in_flight parked oldest_ms rate attempts dead_lettered expired lost"
    assert list(found["topics"][0]) == names.split()


def test_a_queue_may_begin_at_the_end_or_at_a_time(
    run: Run, new_topic: NewTopic, unused: str, write: Write, shown: Shown
) -> None:
    topic = new_topic()
    hour_ms = 3_600_000
    now_ms = round(time.time() * 1000)
    write(topic, "old", timestamp=now_ms - 2 * hour_ms)
    write(topic, "new", timestamp=now_ms)
    run("queue", "create", f"{unused}-time", topic, "--from", "-1h")
    run("queue", "create", f"{unused}-end", topic, "--from", "latest")
    assert shown(f"{unused}-time")["topics"][0]["start"] == 1
    assert shown(f"{unused}-end")["topics"][0]["start"] == 2
    assert "--from takes" in run("queue", "create", unused, topic, "--from", "last:1", code=2)[1]


def test_a_dry_run_makes_nothing(run: Run, ten: str, unused: str) -> None:
    said, _ = run("queue", "create", unused, ten, "--attempts", 3, "--dry-run")
    assert said.startswith(f"would create queue {unused}")
    assert "share.delivery.count.limit: 3" in said
    assert f"there is no queue '{unused}'" in run("queue", "show", unused, code=4)[1]


def test_what_was_made_is_told_to_programs(run: Run, ten: str, unused: str) -> None:
    found = json.loads(run("queue", "create", unused, ten, "--json", "--lock", "45s")[0])
    assert (found["name"], found["topic"], found["messages"], found["dry_run"]) == (unused, ten, 10, False)
    assert found["starts"] == [{"partition": 0, "offset": 0}]
    assert found["configs"]["share.record.lock.duration.ms"] == "45000"


def test_a_queue_of_a_topic_that_is_not_there_ends_with_4(run: Run, unused: str) -> None:
    assert f"there is no topic '{unused}'" in run("queue", "create", "workers", unused, code=4)[1]


def test_a_queue_that_exists_is_not_made_again(run: Run, queue: Queue) -> None:
    name, topic = queue()
    assert f"queue {name} on {topic} exists" in run("queue", "create", name, topic, code=5)[1]


def test_a_queue_may_have_several_topics(run: Run, queue: Queue, ten: str, shown: Shown) -> None:
    name, topic = queue("tea")
    run("queue", "create", name, ten)
    assert {row["topic"]: row["backlog"] for row in shown(name)["topics"]} == {topic: 1, ten: 10}


def test_a_group_of_consumers_is_no_queue(run: Run, ten: str, unused: str, join: Any) -> None:
    join(unused, ten)
    run("queue", "create", unused, ten, code=5)


@pytest.mark.parametrize("options", [("--attempts", "0"), ("--lock", "soon"), ("--retry-delay", "1 hat")])
def test_options_that_mean_nothing_end_with_2(run: Run, ten: str, unused: str, options: tuple[str, str]) -> None:
    run("queue", "create", unused, ten, *options, code=2)


def test_a_value_that_the_broker_refuses_makes_nothing(run: Run, ten: str, unused: str) -> None:
    assert "share.delivery.count.limit" in run("queue", "create", unused, ten, "--attempts", 1000, code=5)[1]
    run("queue", "show", unused, code=4)


def test_a_topic_for_dead_letters_is_made_where_it_is_missing(
    run: Run, ten: str, unused: str, shown: Shown, is_ours: bool
) -> None:
    if not is_ours:
        assert "has no dead letter queues" in run("queue", "create", unused, ten, "--dead-letter", "d", code=5)[1]
        return
    assert (
        f"dead letters go to dlq.{unused} (would be created)"
        in run("queue", "create", unused, ten, "--dead-letter", f"dlq.{unused}", "--dry-run")[0]
    )
    run("queue", "create", unused, ten, "--dead-letter", f"dlq.{unused}")
    assert shown(unused)["dead_letter"] == f"dlq.{unused}"
    found = json.loads(run("topic", "show", f"dlq.{unused}", "--json", "--all-configs")[0])["configs"]
    assert "errors.deadletterqueue.group.enable" in json.dumps(found)
    said, _ = run("queue", "create", f"{unused}-2", ten, "--dead-letter", f"dlq.{unused}")
    assert f"dead letters go to dlq.{unused}\n" in said


def test_a_topic_that_takes_no_dead_letters_ends_with_5(
    run: Run, ten: str, new_topic: NewTopic, unused: str, is_ours: bool
) -> None:
    if not is_ours:
        pytest.skip("Kafka has dead letters from 4.4 on")
    plain = new_topic()
    _, warned = run("queue", "create", unused, ten, "--dead-letter", plain, code=5)
    assert f"`tailrace topic alter {plain} --set errors.deadletterqueue.group.enable=true` allows them" in warned
    run("queue", "show", unused, code=4)
    run("topic", "alter", plain, "--set", "errors.deadletterqueue.group.enable=true")
    run("queue", "create", unused, ten, "--dead-letter", plain)
    run("queue", "create", f"{unused}-2", ten, "--dead-letter", ten, code=2)


def test_what_failed_and_what_waits_is_shown(
    run: Run, queue: Queue, shown: Shown, start: Any, is_ours: bool, tmp_path: Any
) -> None:
    if not is_ours:
        pytest.skip("only tailrace tells")
    name, topic = queue("bad", "held", "later", "waits", options=("--retry-delay", "1h"))
    script = f"v=$(cat); case $v in bad) exit 65;; later) exit 1;; esac; touch {tmp_path}/held; exec sleep 60"
    worker = start("queue", "work", name, topic, "--", "sh", "-c", script)
    deadline = time.monotonic() + 30
    while not (tmp_path / "held").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (row,) = shown(name)["topics"]
    assert (row["start"], row["backlog"], row["in_flight"], row["parked"]) == (1, 3, 1, 0)
    assert row["oldest_ms"] >= 0
    peeked = [json.loads(line) for line in run("queue", "peek", name, topic, "--json")[0].splitlines()]
    assert [(one["value"], one["state"], one["attempt"]) for one in peeked] == [
        ("held", "acquired", 1),
        ("later", "available", 0),
        ("waits", "available", 0),
    ]
    worker.kill()
    worker.wait()
    while (row := shown(name)["topics"][0])["parked"] != 1:
        assert time.monotonic() < deadline
    assert row["attempts"] == {"1": 1}
    assert "unfinished after" not in run("queue", "show", name)[0]
    peeked = [json.loads(line) for line in run("queue", "peek", name, topic, "--json")[0].splitlines()]
    assert (peeked[0]["state"], peeked[0]["attempt"]) == ("parked", 1)


def test_queues_are_listed_with_their_backlog(run: Run, queue: Queue) -> None:
    name, topic = queue("tea", "coffee")
    rows = {row["name"]: row for row in json.loads(run("queue", "list", "--json")[0])}
    assert rows[name] == {"name": name, "state": "empty", "topics": [topic], "members": 0, "backlog": 2}
    said = run("queue", "ls")[0].splitlines()
    assert said[0].split() == ["QUEUE", "STATE", "TOPICS", "MEMBERS", "BACKLOG"]
    assert [name, "empty", topic, "0", "2"] in [line.split() for line in said]


@pytest.mark.parametrize(
    "arguments",
    [("show",), ("peek", "t"), ("purge", "t", "--yes"), ("set", "--set", "share.delivery.count.limit=4"),
     ("work", "t", "--", "true")],
)  # fmt: skip
def test_a_queue_that_is_not_there_ends_with_4(run: Run, unused: str, arguments: tuple[str, ...]) -> None:
    verb, *rest = arguments
    assert f"there is no queue '{unused}'" in run("queue", verb, unused, *rest, code=4)[1]


def test_a_mistyped_queue_gets_a_suggestion(run: Run, queue: Queue) -> None:
    name, _ = queue()
    assert f"did you mean {name}" in run("queue", "show", f"{name}x", code=4)[1]


@pytest.mark.parametrize("arguments", [("peek",), ("purge", "--yes"), ("work", "--", "true")])
def test_a_topic_that_is_none_of_the_queue_ends_with_4(
    run: Run, queue: Queue, ten: str, arguments: tuple[str, ...]
) -> None:
    name, topic = queue()
    verb, *rest = arguments
    assert f"is no queue of topic {ten}: it is one of {topic}" in run("queue", verb, name, ten, *rest, code=4)[1]


def test_a_queue_is_shown_in_80_columns(run: Run, queue: Queue) -> None:
    name, topic = queue("tea")
    said, _ = run("queue", "show", name, environment={"COLUMNS": "80"})
    lines = said.splitlines()
    assert lines[0] == f"{name}  empty, 0 members, backlog 1"
    assert "attempts 5" in lines[1]
    assert lines[3].split() == ["TOPIC", "PARTITION", "START", "BACKLOG", "IN", "FLIGHT", "PARKED", "OLDEST", "RATE"]
    assert lines[4].split()[:4] == [topic, "0", "0", "1"]
    assert len(lines[3]) - len("TOPIC") <= 80 - len("a-topic")


def test_peeking_takes_nothing(run: Run, queue: Queue, shown: Shown) -> None:
    name, topic = queue("tea", "coffee", "milk")
    rows = [json.loads(line) for line in run("queue", "peek", name, topic, "--max", 2, "--json")[0].splitlines()]
    assert [(row["topic"], row["partition"], row["offset"], row["value"]) for row in rows] == [
        (topic, 0, 0, "tea"),
        (topic, 0, 1, "coffee"),
    ]
    assert all({"state", "attempt"} <= row.keys() for row in rows)
    said = run("queue", "peek", name, topic)[0].splitlines()
    assert [line.split()[-1] for line in said] == ["tea", "coffee", "milk"]
    done, _ = run("queue", "work", name, topic, "--drain", "--", "sh", "-c", "echo $TAILRACE_ATTEMPT")
    assert done.split() == ["1", "1", "1"]
    assert backlog(shown(name)) == 0
    assert "has no message" in run("queue", "peek", name, topic)[1]


def test_purging_finishes_what_waits_and_leaves_the_topic_as_it_is(run: Run, queue: Queue, shown: Shown) -> None:
    name, topic = queue("tea", "coffee")
    assert run("queue", "purge", name, topic, "--dry-run")[0] == (
        f"would purge 2 messages of {topic} from queue {name}\n"
    )
    assert "there is no terminal to ask at" in run("queue", "purge", name, topic, code=5)[1]
    assert backlog(shown(name)) == 2
    found = json.loads(run("queue", "purge", name, topic, "--yes", "--json")[0])
    assert found == {"name": name, "topic": topic, "dry_run": False, "messages": 2}
    assert backlog(shown(name)) == 0
    assert run("tail", topic, "--no-follow")[0].split() == ["tea", "coffee"]


def test_what_was_purged_is_in_the_loss_ledger(run: Run, queue: Queue, is_ours: bool) -> None:
    if not is_ours:
        pytest.skip("only tailrace has a loss ledger")
    name, topic = queue("tea", "coffee", "milk")
    run("queue", "work", name, topic, "--drain", "--", "true")
    run("produce", topic, given=b"water\nwine\n")
    run("queue", "purge", name, topic, "--yes")
    said, _ = run("lag", name, "--losses", "--json")
    (loss,) = [one for one in json.loads(said)["losses"] if one["topic"] == topic]
    assert (loss["reason"], loss["records"]) == ("purged", 2)


def test_a_queue_with_members_is_not_purged(run: Run, queue: Queue, start: Any, shown: Shown) -> None:
    name, topic = queue("tea")
    start("queue", "work", name, topic, "--", "sleep", "60")
    deadline = time.monotonic() + 30
    while shown(name)["members"] == 0:
        assert time.monotonic() < deadline
    assert "nothing was purged: queue" in run("queue", "purge", name, topic, "--yes", code=5)[1]


def test_configs_of_a_queue_are_changed_with_units(run: Run, queue: Queue, shown: Shown) -> None:
    name, _ = queue()
    key = "share.record.lock.duration.ms"
    assert f"{key}: 30000 → 50000" in run("queue", "set", name, "--set", f"{key}=50s", "--dry-run")[0]
    assert shown(name)["configs"][key] == "30000"
    found = json.loads(run("queue", "set", name, "--set", f"{key}=50s", "--json")[0])
    assert found["changes"] == [{"name": key, "before": "30000", "after": "50000"}]
    assert shown(name)["configs"][key] == "50000"
    run("queue", "set", name, "--unset", key)
    assert key not in shown(name)["configs"]
    assert "there is no group config 'colour'" in run("queue", "set", name, "--set", "colour=blue", code=2)[1]


def test_a_shell_completes_the_names_of_queues(run: Run, queue: Queue, bootstrap: str) -> None:
    name, _ = queue()
    words = {"_TAILRACE_COMPLETE": "complete_bash", "COMP_WORDS": f"tailrace queue show {name[:-2]}", "COMP_CWORD": "3"}
    assert name in run(environment=words)[0].split()
    assert run(environment={**words, "TAILRACE_BOOTSTRAP": "127.0.0.1:1"})[0].split() == []


def test_no_broker_ends_with_3(run: Run) -> None:
    assert "no broker answers" in run("queue", "list", "-b", "127.0.0.1:1", code=3)[1]
