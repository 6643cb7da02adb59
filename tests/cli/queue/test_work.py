"""`tailrace queue work`, run as a user runs it: what the command gets, and what becomes of the message."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waits import until

Run = Callable[..., tuple[str, str]]
Queue = Callable[..., tuple[str, str]]
Shown = Callable[[str], dict[str, Any]]
Start = Callable[..., Any]


def work(run: Run, name: str, topic: str, script: str, *options: object) -> tuple[str, str]:
    """Until all is finished, with a script of the shell for each message."""
    return run("queue", "work", name, topic, "--drain", *options, "--", "sh", "-c", script)


def backlog(shown: dict[str, Any]) -> int:
    return sum(row["backlog"] for row in shown["topics"])


def test_a_command_gets_the_value_and_where_it_is(run: Run, queue: Queue, write: Callable[..., None]) -> None:
    name, topic = queue(partitions=2)
    write(topic, "tea", partition=1, key="ann", timestamp=1_700_000_000_000)
    script = 'echo "$(cat) $TAILRACE_TOPIC $TAILRACE_PARTITION $TAILRACE_OFFSET $TAILRACE_ATTEMPT $TAILRACE_KEY'
    said, warned = work(run, name, topic, f'{script} $TAILRACE_TIMESTAMP"')
    assert said == f"tea {topic} 1 0 1 ann 1700000000000\n"
    assert warned.splitlines() == [f"tailrace: queue {name}: 1 accepted, 0 rejected, 0 released"]


def test_keys_that_no_variable_can_have_are_base64_and_no_key_is_no_variable(
    run: Run, queue: Queue, write: Callable[..., None]
) -> None:
    name, topic = queue()
    write(topic, "zero", key=b"a\0b")
    write(topic, None)
    script = 'echo "$(cat):${TAILRACE_KEY-none}:${TAILRACE_KEY_BASE64-none}"'
    said, _ = work(run, name, topic, script)
    assert said.split() == ["zero:none:YQBi", ":none:none"]


def test_the_exit_code_says_what_becomes_of_a_message(run: Run, queue: Queue, shown: Shown) -> None:
    name, topic = queue("good", "bad", "twice", options=("--retry-delay", "0"))
    script = "v=$(cat); [ $v != bad ] || exit 65; [ $v != twice ] || [ $TAILRACE_ATTEMPT = 3 ] || exit 1"
    _, warned = work(run, name, topic, script)
    assert f"{topic} [0] at offset 1, attempt 1: exit code 65: rejected" in warned
    for attempt in (1, 2):
        assert f"{topic} [0] at offset 2, attempt {attempt}: exit code 1: released" in warned
    assert warned.splitlines()[-1] == f"tailrace: queue {name}: 2 accepted, 1 rejected, 2 released"
    assert backlog(shown(name)) == 0


def test_a_command_that_is_killed_releases_its_message(run: Run, queue: Queue) -> None:
    name, topic = queue("tea", options=("--retry-delay", "0"))
    _, warned = work(run, name, topic, "[ $TAILRACE_ATTEMPT = 2 ] || kill -9 $$")
    assert "attempt 1: killed by SIGKILL: released" in warned


def test_a_message_is_given_up_after_its_attempts(run: Run, queue: Queue) -> None:
    name, topic = queue("poison", "good", options=("--attempts", "3", "--retry-delay", "0"))
    said, _ = work(run, name, topic, "grep -v poison")
    assert said.split() == ["good"]


def test_as_many_commands_run_at_once_as_were_asked_for(run: Run, queue: Queue, tmp_path: Path) -> None:
    """Each waits for the others, so that they end only if all of them run."""
    name, topic = queue(*map(str, range(5)))
    script = f"touch {tmp_path}/$(cat); until [ $(ls {tmp_path} | wc -l) = 5 ]; do sleep 0.05; done"
    _, warned = work(run, name, topic, script, "--concurrency", 5)
    assert "5 accepted" in warned


def test_a_slow_message_holds_up_no_other_and_its_lock_is_renewed(run: Run, queue: Queue, tmp_path: Path) -> None:
    """It ends when all others have, and takes longer than its lock."""
    name, topic = queue("slow", *map(str, range(20)), options=("--lock", "2s"))
    others = f"[ $(ls {tmp_path} | wc -l) = 20 ]"
    script = (
        f"v=$(cat); [ $v = slow ] || {{ touch {tmp_path}/$v; exit; }}; until {others}; do sleep 0.05; done; sleep 3"
    )
    _, warned = work(run, name, topic, script, "--concurrency", 2)
    assert warned.splitlines() == [f"tailrace: queue {name}: 21 accepted, 0 rejected, 0 released"]


def test_several_workers_share_a_queue(run: Run, queue: Queue, start: Start, shown: Shown) -> None:
    name, topic = queue(*map(str, range(40)))
    options = ("--concurrency", 2, "--drain", "--", "sh", "-c", "echo $(cat)")
    workers = [start("queue", "work", name, topic, *options) for _ in range(3)]
    done = [number for worker in workers for number in worker.communicate(timeout=50)[0].split()]
    assert sorted(map(int, done)) == list(range(40))
    assert backlog(shown(name)) == 0


def is_running(path: Path) -> Callable[[], bool]:
    return lambda: path.exists()


def test_an_interrupt_finishes_what_runs_and_takes_no_more(
    queue: Queue, start: Start, shown: Shown, tmp_path: Path
) -> None:
    name, topic = queue("one", "two")
    script = f"touch {tmp_path}/begun; until [ -e {tmp_path}/go ]; do sleep 0.05; done; cat"
    worker = start("queue", "work", name, topic, "--", "sh", "-c", script)
    until(is_running(tmp_path / "begun"))
    worker.send_signal(signal.SIGINT)
    assert b"finishing 1 message" in worker.stderr.readline()
    (tmp_path / "go").touch()
    said, warned = worker.communicate(timeout=50)
    assert worker.returncode == 0
    assert said == b"one"
    assert b"1 accepted" in warned
    assert backlog(shown(name)) == 1


def test_a_second_interrupt_releases_what_runs(
    run: Run, queue: Queue, start: Start, shown: Shown, tmp_path: Path
) -> None:
    name, topic = queue("one", options=("--lock", "50s", "--retry-delay", "0"))
    script = f"touch {tmp_path}/begun; sleep 100 & wait"
    worker = start("queue", "work", name, topic, "--", "sh", "-c", script)
    until(is_running(tmp_path / "begun"))
    worker.send_signal(signal.SIGINT)
    worker.stderr.readline()
    worker.send_signal(signal.SIGINT)
    _, warned = worker.communicate(timeout=50)
    assert worker.returncode == 0
    assert b"1 released" in warned
    assert work(run, name, topic, "echo $TAILRACE_ATTEMPT")[0].split() == ["2"]


def test_messages_of_a_worker_that_is_killed_come_again_at_once(
    run: Run, queue: Queue, start: Start, tmp_path: Path
) -> None:
    name, topic = queue("one", options=("--lock", "50s", "--retry-delay", "0"))
    worker = start("queue", "work", name, topic, "--", "sh", "-c", f"touch {tmp_path}/begun; exec sleep 5")
    until(is_running(tmp_path / "begun"))
    worker.kill()
    assert work(run, name, topic, "echo $TAILRACE_ATTEMPT")[0].split() == ["2"]


def test_messages_that_come_later_are_worked_on(
    queue: Queue, start: Start, write: Callable[..., None], tmp_path: Path
) -> None:
    name, topic = queue()
    worker = start("queue", "work", name, topic, "--", "cat")
    for value in ("first\n", "second\n"):
        write(topic, value)
        assert worker.stdout.readline() == value.encode()
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=50)
    assert worker.returncode == 0


def test_a_program_that_is_not_there_ends_with_2(run: Run, queue: Queue) -> None:
    name, topic = queue("one")
    assert (
        "there is no program 'no-such-program'" in run("queue", "work", name, topic, "--", "no-such-program", code=2)[1]
    )
    run("queue", "work", name, topic, code=2)


def test_a_worker_outlives_the_death_of_its_broker(
    run: Run, own_broker: Callable[..., Any], start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    with own_broker(tmp_path / "data") as (address, broker):
        environment["TAILRACE_BOOTSTRAP"] = address
        run("topic", "create", "orders")
        run("queue", "create", "workers", "orders")
        worker = start("queue", "work", "workers", "orders", "--", "sh", "-c", "echo $(cat)")
        run("produce", "orders", given=b"before\n")
        assert worker.stdout.readline() == b"before\n"
        until(lambda: json.loads(run("queue", "show", "workers", "--json")[0])["topics"][0]["backlog"] == 0)
        broker.kill()
        assert b"waiting for a broker" in worker.stderr.readline()
        broker.start()
        run("produce", "orders", given=b"after\n")
        assert worker.stdout.readline() == b"after\n"
        worker.send_signal(signal.SIGTERM)
        _, warned = worker.communicate(timeout=50)
        assert b"a broker answers again" in warned
