"""`tailrace produce`, run as a user runs it, against a broker."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[str, str]]
Start = Callable[..., "subprocess.Popen[bytes]"]
NewTopic = Callable[..., str]


def written(run: Run, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic, by partition and offset."""
    rows = [json.loads(line) for line in run("tail", topic, "--no-follow", "--json")[0].splitlines()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def test_lines_become_messages_empty_ones_too(run: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    said, warned = run("produce", topic, given=b"one\n\nthree\r\nlast")
    assert said == ""
    assert warned.startswith(f"4 messages written to {topic}"), "how fast is said, too, where it took a second"
    rows = written(run, topic)
    assert [row["value"] for row in rows] == ["one", "", "three\r", "last"]
    assert all(row["key"] is None and row["headers"] == [] for row in rows)
    assert abs(rows[0]["timestamp"] / 1000 - time.time()) < 60


def test_a_topic_that_is_not_there_is_made_if_the_broker_does_that(run: Run) -> None:
    topic = uuid.uuid4().hex
    run("produce", topic, "--dry-run", given=b"a\n", code=4)
    assert f"the broker created {topic}, which did not exist" in run("produce", topic, given=b"a\n")[1]
    assert [row["value"] for row in written(run, topic)] == ["a"]


def test_nothing_is_nothing(run: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert run("produce", topic, "-", given=b"")[1].startswith(f"0 messages written to {topic}")


def test_keys_headers_partitions_and_compression_can_be_given(run: Run, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(partitions=3)
    file = tmp_path / "lines"
    file.write_bytes(b"a=1=2\n=empty\n\xff=\xfe\n")
    run("produce", topic, file, "--key-separator", "=", "-H", "h:v", "--partition", 2, "--compression", "lz4")
    run("produce", topic, "-k", "key", "--partition", 1, "--acks", "1", given=b"v\n")
    rows = written(run, topic)
    assert [row["partition"] for row in rows] == [1, 2, 2, 2]
    assert [(row.get("key"), row.get("value")) for row in rows[:3]] == [("key", "v"), ("a", "1=2"), ("", "empty")]
    assert (rows[3]["key_base64"], rows[3]["value_base64"]) == ("/w==", "/g==")
    assert rows[1]["headers"] == [["h", "v"]]


def test_a_key_has_the_partition_that_javas_clients_give_it(run: Run, new_topic: NewTopic) -> None:
    from kafka.partitioner.default import murmur2

    topic = new_topic(partitions=5)
    keys = [f"key-{number}" for number in range(40)]
    run("produce", topic, "--key-separator", ":", given="".join(f"{key}:v\n" for key in keys).encode())
    found = {row["key"]: row["partition"] for row in written(run, topic)}
    assert found == {key: (murmur2(key.encode()) & 0x7FFFFFFF) % 5 for key in keys}


def test_a_topic_is_copied_with_keys_values_headers_timestamps_and_partitions(run: Run, new_topic: NewTopic) -> None:
    source, copy = new_topic(partitions=3), new_topic(partitions=3)
    binary = b64encode(bytes(range(256))).decode()
    now = int(time.time() * 1000)
    rows: list[dict[str, Any]] = [
        {"key": "k", "value": "grüße", "headers": [["a", "1"], ["a", None]], "timestamp": now - 5000, "partition": 0},
        {"key_base64": binary, "value_base64": binary, "headers": [["b", {"base64": binary}]], "partition": 1},
        {"key": None, "value": "no key", "timestamp": now, "partition": 2},
        {"key": "k", "value": None, "partition": 2},
        {"key": "", "value": "", "partition": 2},
    ]
    run("produce", source, "--json", "--keep-partition", given="\n".join(map(json.dumps, rows)).encode())
    out, _ = run("tail", source, "--no-follow", "--json")
    run("produce", copy, "--json", "--keep-partition", given=out.encode())
    original, copied = ([{**row, "topic": ""} for row in written(run, topic)] for topic in (source, copy))
    assert copied == original
    for row, given in zip(copied, rows, strict=True):
        assert given.items() <= row.items()


def test_a_bad_line_is_named_and_what_came_before_is_written(run: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    warned = run("produce", topic, "--json", given=b'{"value": "a"}\n{"value": "b"}\n{"value": \n', code=1)[1]
    assert "line 3: it is no JSON" in warned
    assert f"2 messages written to {topic}" in warned
    assert [row["value"] for row in written(run, topic)] == ["a", "b"]


def test_a_message_the_broker_refuses_is_named(run: Run, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="2000")
    warned = run("produce", topic, given=b"small\n" + b"x" * 5000 + b"\n", code=1)[1]
    assert "line 2 is not acknowledged" in warned
    assert "the first line that is not: 2" in warned


def test_what_would_be_written_is_checked_and_not_written(run: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert run("produce", topic, "--dry-run", given=b"a\nb\n")[0] == f"would write 2 messages to {topic}\n"
    assert "line 1" in run("produce", topic, "--dry-run", "--json", given=b"a\n", code=1)[1]
    assert written(run, topic) == []


def test_a_topic_a_partition_and_a_file_that_are_not_there_end_with_4(
    run: Run, new_topic: NewTopic, tmp_path: Path
) -> None:
    mistyped = new_topic() + "x"
    assert f"tailrace topic create {mistyped}" in run("produce", mistyped, given=b"a\n", code=4)[1]
    assert "from 0 on: there is no 7" in run("produce", new_topic(), "--partition", 7, given=b"a\n", code=4)[1]
    assert "does not exist" in run("produce", new_topic(), tmp_path / "nowhere", code=4)[1]


@pytest.mark.parametrize(
    "options", [("--resume",), ("--partition", "1", "--keep-partition"), ("--json", "-k", "a"), ("--acks", "2")]
)
def test_options_that_make_no_sense_end_with_2(run: Run, options: tuple[str, ...]) -> None:
    run("produce", "any", *options, given=b"", code=2)


def test_ctrl_c_writes_what_was_taken_and_says_how_far_it_got(run: Run, start: Start, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce = start("produce", topic)
    assert produce.stdin is not None
    produce.stdin.write(b"one\ntwo\n")
    produce.stdin.flush()
    deadline = time.monotonic() + 20
    while len(written(run, topic)) < 2:  # a line is written when it comes, not when the next one does
        assert time.monotonic() < deadline
    produce.send_signal(signal.SIGINT)
    _, warned = produce.communicate(timeout=20)
    assert produce.returncode == 130
    assert f"interrupted: 2 messages written to {topic}" in warned.decode()


SLOWLY = ("-X", "queue.buffering.max.messages=1000", "-X", "linger.ms=50")  # 20,000 messages a second at most


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_load_goes_on_and_leaves_no_line_out(
    run: Run, start: Start, new_topic: NewTopic, tmp_path: Path, end: signal.Signals
) -> None:
    topic = new_topic(partitions=3)
    lines = [f"line {number}" for number in range(60_000)]
    file = tmp_path / "lines"
    file.write_text("\n".join(lines) + "\n")
    produce = start("produce", topic, file, *SLOWLY)
    deadline = time.monotonic() + 20
    while not list((tmp_path / "state").rglob("*.json")):
        assert time.monotonic() < deadline
        assert produce.poll() is None
        time.sleep(0.05)
    produce.send_signal(end)
    produce.communicate(timeout=20)
    warned = run("produce", topic, file, "--resume")[1]
    assert f"of {file}" in warned
    values = run("tail", topic, "--no-follow")[0].splitlines()
    assert set(values) == set(lines)
    assert len(lines) <= len(values) < 2 * len(lines)
    assert list((tmp_path / "state").rglob("*.*")) == []


def test_a_load_goes_on_behind_a_bad_line_once_that_is_mended(run: Run, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    file = tmp_path / "lines"
    file.write_text('{"value": "a"}\n{"value": "b"}\n{"vlaue": "c"}\n')
    assert "--resume goes on there" in run("produce", topic, file, "--json", code=1)[1]
    file.write_text('{"value": "a"}\n{"value": "b"}\n{"value": "c"}\n')
    assert "going on with line 3" in run("produce", topic, file, "--json", "--resume")[1]
    assert [row["value"] for row in written(run, topic)] == ["a", "b", "c"]
    assert "starting at line 1" in run("produce", topic, file, "--json", "--resume", "--dry-run")[1]


def test_a_load_of_a_file_that_has_changed_is_refused(run: Run, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    file = tmp_path / "lines"
    file.write_text('{"value": "a"}\nbad\n')
    run("produce", topic, file, "--json", code=1)
    file.write_text('{"value": "A"}\n{"value": "b"}\n')
    assert "has changed" in run("produce", topic, file, "--json", "--resume", code=5)[1]


def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(
    environment: dict[str, str], new_topic: NewTopic, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 999 + b"\n" * 1)
    file.write_bytes(file.read_bytes() * 2000)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tailrace", "produce", new_topic(), str(file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env={**environment, "TERM": "xterm"})
    os.close(theirs)
    said = b""
    with suppress(OSError):  # EIO: the end
        while read := os.read(ours, 65536):
            said += read
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"MB" in said
    assert b"2,000 messages written" in said


def test_a_message_that_is_too_large_is_told_with_its_size_the_limit_and_the_config(
    run: Run, new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes="1000")
    _, warned = run("produce", topic, "-k", "key", given=b"fits\n" + b"x" * 2000 + b"\n", code=1)
    assert warned.splitlines()[0] == (
        "tailrace: line 2 is not acknowledged: it is too large: the message has 2,003 bytes, and max.message.bytes of "
        f"{topic} is 1,000 for a batch with its header."
    )
    assert f"`tailrace topic alter {topic} --set max.message.bytes=" in warned


def test_a_message_without_a_key_to_a_compacted_topic_fails_with_reason_and_options(
    run: Run, new_topic: NewTopic
) -> None:
    topic = new_topic(cleanup_policy="compact")
    _, warned = run("produce", topic, given=b"value\n", code=1)
    assert warned.splitlines()[:2] == [
        f"tailrace: line 1 is not acknowledged: it has no key, and {topic} is compacted (cleanup.policy=compact): it "
        "keeps the newest message of each key.",
        "  --key KEY gives all messages one, --key-separator SEP takes it from each line",
    ]


def test_a_name_that_no_topic_can_have_is_refused_before_any_input_is_read(run: Run) -> None:
    _, warned = run("produce", "bad name", code=2)
    assert "no topic can be called 'bad name'" in warned
    assert "topic create" not in warned


@pytest.mark.parametrize("is_file", [False, True])
def test_a_topic_is_not_created_for_a_first_line_that_is_no_message(
    run: Run, unused: str, tmp_path: Path, is_file: bool
) -> None:
    good = json.dumps({"value": "one"}).encode() + b"\n"
    (tmp_path / "bad").write_bytes(b"nonsense\n" + good)
    (tmp_path / "good").write_bytes(good * 2)

    def produce(name: str, code: int) -> str:
        source = [tmp_path / name] if is_file else []
        given = None if is_file else (tmp_path / name).read_bytes()
        return run("produce", unused, *source, "--json", given=given, code=code)[1]

    assert f"line 1: it is no JSON: Expecting value, at column 1\n  {unused} does not exist" in produce("bad", 1)
    assert unused not in run("topic", "list")[0]
    assert f"2 messages written to {unused}" in produce("good", 0)
    assert [row["value"] for row in written(run, unused)] == ["one", "one"]
