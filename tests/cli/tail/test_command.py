"""`tailrace tail`, run as a user runs it, against a broker."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pytest

Run = Callable[..., tuple[str, str]]
Start = Callable[..., "subprocess.Popen[bytes]"]
NewTopic = Callable[..., str]


def numbers(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


def line_of(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().rstrip("\n")


def read_while(stream: IO[bytes], step: Callable[[], object]) -> str:
    """A line, and until it comes, one step after the other."""
    while not select.select([stream], [], [], 0)[0]:
        step()
    return stream.readline().decode()


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """With which code it ended, and what it said on stderr."""
    _, warned = process.communicate(timeout=20)
    return process.returncode, warned.decode()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), range(10)),
        (("--from", "last:2"), [8, 9]),
        (("--from", "3", "--to", "5"), [3, 4, 5]),
        (("--from", "-1h", "--to", "now", "-n", "3"), [0, 1, 2]),
    ],
)
def test_what_is_there_is_printed_from_somewhere_to_somewhere(
    run: Run, ten: str, options: tuple[str, ...], expected: list[int]
) -> None:
    said, warned = run("tail", ten, "--no-follow", *options)
    assert [int(line) for line in said.splitlines()] == list(expected)
    assert warned == ""


def test_a_time_finds_the_first_message_that_is_not_older(run: Run, new_topic: NewTopic) -> None:
    topic = new_topic()
    noon = int(datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0).timestamp() * 1000) - 86_400_000
    rows = [{"value": str(hour), "timestamp": noon + hour * 3_600_000} for hour in range(4)]
    run("produce", topic, "--json", given="\n".join(map(json.dumps, rows)).encode())
    moment = datetime.fromtimestamp((noon + 3_600_000) / 1000, UTC)
    assert run("tail", topic, "--from", moment.isoformat(), "--no-follow")[0] == "1\n2\n3\n"
    assert run("tail", topic, "--from", "yesterday 13:00", "--to", "yesterday 14:30")[0] == "1\n2\n"


def test_messages_are_printed_as_they_come_until_so_many_came(run: Run, start: Start, ten: str) -> None:
    tail = start("tail", ten, "--from", "8", "-n", 4)
    assert [line_of(tail), line_of(tail)] == ["8", "9"]
    for value in ("ten", "eleven"):
        run("produce", ten, given=f"{value}\n".encode())
        assert line_of(tail) == value
    assert ended(tail) == (0, "")


def test_from_the_latest_on_is_what_following_means_where_nothing_is_said(run: Run, start: Start, ten: str) -> None:
    tail = start("tail", ten, "-n", 1)
    deadline = time.monotonic() + 20
    while tail.poll() is None and time.monotonic() < deadline:
        run("produce", ten, given=b"new\n")
        time.sleep(0.2)
    assert tail.communicate()[0] == b"new\n"


def test_an_offset_that_nobody_has_written_yet_is_waited_for(run: Run, start: Start, ten: str) -> None:
    tail = start("tail", ten, "--from", "12", "-n", 1)
    time.sleep(1)
    run("produce", ten, given=numbers(10, 14))
    assert line_of(tail) == "12"
    assert ended(tail) == (0, "tailrace: no partition has reached offset 12: the highest end is 10; waiting for it\n")


def test_ctrl_c_ends_quietly(start: Start, ten: str) -> None:
    tail = start("tail", ten, "--from", "9")
    assert line_of(tail) == "9"
    tail.send_signal(signal.SIGINT)
    assert ended(tail) == (0, "")


def test_a_reader_that_stops_ends_it_quietly_though_no_message_comes(start: Start, ten: str) -> None:
    tail = start("tail", ten, "--from", "earliest")
    assert line_of(tail) == "0"
    assert tail.stdout is not None
    tail.stdout.close()
    tail.stdout = None
    assert ended(tail) == (0, "")


def test_new_topics_and_new_partitions_are_followed(run: Run, start: Start, new_topic: NewTopic) -> None:
    first = new_topic(name="followed")
    family = first[:-5]
    tail = start("tail", f"{family}.*", "--from", "earliest", "--format", r"%t %p %v\n", "-n", 3)
    run("produce", first, given=b"one\n")
    assert line_of(tail) == f"{first} 0 one"
    run("topic", "create", f"{family}new", "-p", 1)
    run("topic", "alter", first, "-p", 2)
    run("produce", f"{family}new", given=b"two\n")
    run("produce", first, "--partition", 1, given=b"three\n")
    assert {line_of(tail), line_of(tail)} == {f"{family}new 0 two", f"{first} 1 three"}
    assert ended(tail) == (0, "")


def test_a_pattern_that_matches_nothing_yet_waits_for_a_topic(run: Run, start: Start, unused: str) -> None:
    tail = start("tail", f"{unused}.*", "-n", 1)
    assert tail.stderr is not None
    assert tail.stderr.readline() == b"tailrace: no topic matches yet; waiting for one\n"
    run("topic", "create", f"{unused}-1", "-p", 1)
    run("produce", f"{unused}-1", given=b"first\n")
    assert line_of(tail) == "first"
    assert ended(tail)[0] == 0


def test_several_topics_are_read_at_once(run: Run, new_topic: NewTopic) -> None:
    topics = [new_topic(), new_topic(partitions=3)]
    for number, topic in enumerate(topics):
        run("produce", topic, given=numbers(10 * number, 10 * number + 5))
    said = run("tail", *topics, "--no-follow", "--json")[0]
    rows = [json.loads(line) for line in said.splitlines()]
    assert {row["topic"] for row in rows} == set(topics)
    assert sorted(int(row["value"]) for row in rows) == [*range(6), *range(10, 16)]


def test_reading_leaves_no_group_behind(run: Run, ten: str, bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient

    run("tail", ten, "--no-follow")
    groups = AdminClient({"bootstrap.servers": bootstrap}).list_consumer_groups(request_timeout=10).result().valid
    assert "tailrace-tail" not in {group.group_id for group in groups}


def test_an_end_that_is_no_message_is_an_end(run: Run, new_topic: NewTopic, bootstrap: str) -> None:
    from confluent_kafka import Producer

    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"in a transaction")
        producer.flush(20)
        end(20)
    assert run("tail", topic, "--no-follow")[0].splitlines() == ["in a transaction"]
    assert len(run("tail", topic, "--no-follow", "--uncommitted")[0].splitlines()) == 2


def test_messages_lost_to_retention_are_told(run: Run, ten: str, delete_before: Callable[[str, int], None]) -> None:
    delete_before(ten, 6)
    said, warned = run("tail", ten, "--from", 2, "--no-follow")
    assert said == "6\n7\n8\n9\n"
    assert f"{ten} [0] begins at offset 6: what was before is gone" in warned


def test_an_offset_beyond_the_end_is_reported(run: Run, ten: str) -> None:
    said, warned = run("tail", ten, "--from", 99, "--no-follow")
    assert (said, warned) == ("", "tailrace: no partition has reached offset 99: the highest end is 10\n")


def test_a_terminal_gets_columns_and_a_pipe_the_values(
    run: Run, new_topic: NewTopic, environment: dict[str, str]
) -> None:
    topic = new_topic()
    row = {"key": "k", "value": "v\u001b[2J", "headers": [["h", "x"]], "timestamp": int(time.time() * 1000)}
    run("produce", topic, "--json", given=json.dumps(row).encode())
    command = [sys.executable, "-m", "tailrace", "tail", topic, "--no-follow"]
    for plain in (True, False):
        ours, theirs = pty.openpty()
        colours = {**environment, "TERM": "xterm-256color", **({"NO_COLOR": "1"} if plain else {})}
        subprocess.run(command, stdout=theirs, env=colours, check=True)
        os.close(theirs)
        said = os.read(ours, 65536).decode()
        os.close(ours)
        assert ("\x1b[2m" in said) == (not plain)
        place, moment, key, *rest = said.replace("\x1b[2m", "").replace("\x1b[0m", "").split()
        assert (place, key, rest) == ("0:0", "k", ["v\\x1b[2J", "[h:", "x]"])
        assert datetime.fromisoformat(moment).tzinfo is not None


def test_on_a_terminal_it_says_that_it_waits_and_how_to_see_what_is_there(
    ten: str, environment: dict[str, str]
) -> None:
    for options, said in (((), "waiting for new messages; ctrl-C ends. --from earliest"), (("--from", "9"), "more")):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "tailrace", "tail", ten, *options]
        with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as tail:
            os.close(theirs)
            shown = b""
            while said.encode() not in shown:
                shown += os.read(ours, 1 << 16)  # fails at the end of the process
            tail.send_signal(signal.SIGINT)
        os.close(ours)
        assert shown.count(b"waiting for") == 1


def test_what_is_not_there_ends_with_4(run: Run, new_topic: NewTopic, ten: str, unused: str) -> None:
    assert "there is no topic" in run("tail", unused, code=4)[1]
    assert "no topic matches" in run("tail", f"{unused}.*", "--no-follow", code=4)[1]
    assert "no such partition" in run("tail", ten, "--partition", 5, code=4)[1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--from", "soon"), "is no position"),
        (("--from", "-5"), "last:5"),
        (("--format", "%q"), "means nothing"),
        (("--format", "%v", "--json"), "exclude"),
        (("-n", "0"), "Invalid value"),
        (("--group", "g", "--partition", "0"), "exclude"),
        (("--group", ""), "takes a name"),
    ],
)
def test_what_makes_no_sense_ends_with_2(run: Run, options: tuple[str, ...], why: str) -> None:
    assert why in run("tail", "any", *options, code=2)[1]


def test_nothing_heavy_is_imported_before_a_verb_runs() -> None:
    code = "import sys; from tailrace.cli.app import app_of; app_of(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"confluent_kafka", "rich.console", "tailrace.cli.tail.follower"} & set(loaded)


def test_a_pipe_slows_down_who_writes_into_it(run: Run, start: Start, new_topic: NewTopic) -> None:
    topic = new_topic()
    run("produce", topic, given=(b"x" * 9_999 + b"\n") * 5_000)
    tail: Any = start("tail", topic, "--from", "earliest")
    assert line_of(tail)
    time.sleep(1)
    with open(f"/proc/{tail.pid}/io") as io:
        writes = {name: int(value) for name, value in (entry.split(":") for entry in io)}
    assert writes["wchar"] < 5_000 * 10_000 / 2
    tail.stdout.close()
    tail.stdout = None
    assert ended(tail) == (0, "")


def test_a_broker_that_goes_away_is_waited_for(
    run: Run, start: Start, own_broker: Callable[..., Any], tmp_path: Path
) -> None:
    with own_broker(tmp_path / "data") as (address, _):
        run("produce", "orders", "-b", address, given=b"before\n")
        tail = start("tail", "orders", "--from", "earliest", "-n", 2, "-b", address)
        assert line_of(tail) == "before"
    with own_broker(tmp_path / "data", address):
        run("produce", "orders", "-b", address, given=b"after\n")
        assert line_of(tail) == "after"
        code, warned = ended(tail)
    assert code == 0
    assert warned.startswith(f"tailrace: no broker answers at {address}")
    assert warned.count("no broker answers") == 1


def committed(run: Run, group: str) -> list[int | None]:
    return [row["committed"] for row in json.loads(run("group", "show", group, "--json")[0])["partitions"]]


def test_a_group_goes_on_where_it_was(run: Run, ten: str, unused: str) -> None:
    assert run("tail", ten, "--group", unused, "--from", "2", "-n", 3) == ("2\n3\n4\n", "")
    assert committed(run, unused) == [5]
    assert run("tail", ten, "--group", unused, "--from", "earliest", "--no-follow") == ("5\n6\n7\n8\n9\n", "")
    assert run("tail", ten, "--group", unused, "--no-follow") == ("", "")
    assert committed(run, unused) == [10]


def test_a_group_reads_up_to_somewhere(run: Run, ten: str, unused: str) -> None:
    assert run("tail", ten, "--group", unused, "--to", "5", "--from", "earliest")[0].split() == list("012345")
    assert committed(run, unused) == [6]


def test_a_new_group_has_its_place_at_once(
    run: Run, start: Start, ten: str, unused: str, wait_for_members: Callable[..., None]
) -> None:
    tail = start("tail", ten, "--group", unused, "-X", "auto.commit.interval.ms=50")
    wait_for_members(unused, 1)
    while committed(run, unused) != [10]:
        pass
    tail.send_signal(signal.SIGINT)
    assert ended(tail) == (0, "")
    run("produce", ten, given=b"while nobody read\n")
    assert run("tail", ten, "--group", unused, "--no-follow")[0] == "while nobody read\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_asked_to_end_commits_what_it_wrote_and_leaves(
    run: Run, start: Start, ten: str, unused: str, number: int
) -> None:
    tail = start("tail", ten, "--group", unused, "--from", "7")
    assert [line_of(tail) for _ in range(3)] == ["7", "8", "9"]
    tail.send_signal(number)
    assert ended(tail) == (0, "")
    found = json.loads(run("group", "show", unused, "--json")[0])
    assert (found["state"], found["members"], found["lag"]) == ("empty", [], 0)


def test_a_reader_that_stops_leaves_what_was_not_written_to_the_next(
    run: Run, start: Start, new_topic: NewTopic, unused: str
) -> None:
    topic = new_topic()
    run("produce", topic, given=b"".join(b"%d %s\n" % (number, b"x" * 9_990) for number in range(300)))
    tail = start("tail", topic, "--group", unused, "--from", "earliest")
    assert line_of(tail).startswith("0 ")
    assert tail.stdout is not None
    tail.stdout.close()
    tail.stdout = None
    assert ended(tail) == (0, "")
    (offset,) = committed(run, unused)
    assert offset is not None
    first = run("tail", topic, "--group", unused, "-n", 1)[0]
    assert int(first.split()[0]) == offset
    assert offset < 300  # far more than a pipe holds


def test_members_share_partitions_and_hand_them_on(
    run: Run, start: Start, new_topic: NewTopic, unused: str, wait_for_members: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)

    def write_to_both(value: str) -> None:
        rows = [{"partition": number, "value": value} for number in range(2)]
        run("produce", topic, "--json", "--keep-partition", given="\n".join(map(json.dumps, rows)).encode())

    options = ("--from", "earliest", "--format", r"%p %v\n", "-X", "heartbeat.interval.ms=100")
    tails = [start("tail", topic, "--group", unused, *options) for _ in range(2)]
    wait_for_members(unused, 2)
    write_to_both("first")
    assert {line_of(tail) for tail in tails} == {"0 first", "1 first"}
    tails[0].send_signal(signal.SIGINT)
    assert ended(tails[0]) == (0, "")
    write_to_both("second")
    assert {line_of(tails[1]) for _ in range(2)} == {"0 second", "1 second"}


def test_a_member_without_a_partition_says_so_and_takes_over(
    run: Run, start: Start, ten: str, unused: str, join: Callable[..., Any]
) -> None:
    first = join(unused, ten, partition_assignment_strategy="cooperative-sticky")
    options = ("-X", "heartbeat.interval.ms=100", "-X", "partition.assignment.strategy=cooperative-sticky")
    tail = start("tail", ten, "--group", unused, "--from", "8", *options)
    assert tail.stderr is not None
    standing_by = f"tailrace: the other members of {unused} have all the partitions; standing by\n"
    assert read_while(tail.stderr, lambda: first.poll(0.02)) == standing_by
    first.unsubscribe()
    assert tail.stdout is not None
    assert read_while(tail.stdout, lambda: first.poll(0.02)) == "8\n"


def test_an_assignor_that_the_others_do_not_know_is_named_as_the_reason(
    run: Run, ten: str, unused: str, join: Callable[..., Any]
) -> None:
    join(unused, ten, partition_assignment_strategy="cooperative-sticky")
    assert "-X partition.assignment.strategy=" in run("tail", ten, "--group", unused, code=5)[1]


def test_what_a_group_lost_to_retention_is_told(
    run: Run, ten: str, unused: str, delete_before: Callable[[str, int], None]
) -> None:
    run("group", "reset", unused, "--topic", ten, "--to", 2, "--yes")
    delete_before(ten, 6)
    said, warned = run("tail", ten, "--group", unused, "--no-follow")
    assert said == "6\n7\n8\n9\n"
    assert f"{ten} [0]: offsets 2 to 5 are gone (retention); going on at 6" in warned
