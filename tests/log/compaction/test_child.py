"""A pass in a process of its own: it does the same, and ends with whoever started it."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from compactions import CONFIG, World, batches_of, compact
from logs import ORDERS

from tailrace.log.compaction.child import NICENESS, Pace
from tailrace.log.compaction.child_process import ChildPass
from tailrace.log.compaction.jobs import Compaction
from tailrace.log.compaction.messages import CleanedGroup, CleanerSettings, PassFailed, PassResult, PassSpec
from tailrace.log.compaction.plan import cleanable
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.names import CLEANED
from tailrace.records.compression import Codec
from tailrace.records.control import Marker


def world_at(path: Path) -> World:
    world = World(opened=DataDirectory(OperatingSystemFiles(), str(path), CONFIG))
    for number in range(12):
        world.write([(b"key %d" % (number % 4), b"%d" % number * 50)], Codec.ZSTD, 5, False)
        world.write([(b"key 1", b"x")], Codec.NONE, 7, True)
        world.mark(7, Marker.ABORT if number % 3 else Marker.COMMIT)
    world.log.roll()
    world.checkpoint()
    return world


def spec_of(world: World) -> PassSpec:
    plan = cleanable(world.log.view, 0, world.log.recovery_point_on_disk)
    spec = Compaction(world.log, plan, world.now)._spec()
    assert spec is not None
    return spec


def cleaned_files(world: World) -> list[str]:
    return [name for name in os.listdir(world.log.directory) if name.endswith(CLEANED)]


def test_a_process_of_its_own_does_the_same_as_one_pass_here(tmp_path: Path) -> None:
    here, there = world_at(tmp_path / "here"), world_at(tmp_path / "there")
    result = compact(here.log, here.now)
    assert isinstance(result, PassResult)
    other = compact(there.log, there.now, begin_pass=ChildPass)
    assert isinstance(other, PassResult)
    assert other.peak_memory_bytes > 0
    assert replace(other, seconds=0.0, peak_memory_bytes=0) == result
    assert batches_of(here.log) == batches_of(there.log)
    for world in (here, there):
        world.directory.close(world.now)
        assert not cleaned_files(world)


def test_what_a_pass_is_told_comes_through_a_pipe_as_it_is(tmp_path: Path) -> None:
    world = world_at(tmp_path / "data")
    spec = spec_of(world)
    assert spec.aborted
    assert spec.producers
    assert PassSpec.decode(spec.encode()) == spec
    world.directory.close(world.now)


def wait_for_end(process_id: int) -> None:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{process_id}/cmdline").exists() and Path(f"/proc/{process_id}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.01)


def test_a_pass_that_is_killed_is_said_and_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    world = world_at(tmp_path / "data")
    before = batches_of(world.log)
    slow = CleanerSettings(io_bytes_per_second=1000)
    started: list[ChildPass] = []

    def begin(spec: PassSpec) -> ChildPass:
        started.append(ChildPass(spec))
        os.kill(started[0].process_id, signal.SIGKILL)
        return started[0]

    result = compact(world.log, world.now, slow, begin)
    assert isinstance(result, PassFailed)
    assert "-9" in result.reason
    assert not cleaned_files(world)
    assert batches_of(world.log) == before
    assert isinstance(compact(world.log, world.now), PassResult)
    world.directory.close(world.now)


def test_a_pass_ends_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    world = world_at(tmp_path / "data")
    child = ChildPass(replace(spec_of(world), settings=CleanerSettings(io_bytes_per_second=10)))
    process: subprocess.Popen[str] = child._process
    assert process.stdin is not None
    process.stdin.write(child._line + "\n")
    process.stdin.flush()
    deadline = time.monotonic() + 30
    at_work = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    while os.getpriority(os.PRIO_PROCESS, child.process_id) != at_work:  # and it will be for long
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.stdin.close()
    wait_for_end(child.process_id)
    child.close()
    world.directory.close(world.now)
    Path(world.log.directory, "00000000000000000000.log" + CLEANED).touch()
    reopened = DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"), CONFIG)
    assert not cleaned_files(world), "a start removes what it left"
    world.check_nothing_is_lost(reopened.logs[ORDERS])
    reopened.close(world.now)


def test_a_pass_works_in_its_directory_whatever_that_is_called_by_now(tmp_path: Path) -> None:
    world = world_at(tmp_path / "data")
    child = ChildPass(spec_of(world))
    directory = Path(world.log.directory)
    directory.rename(directory.with_name("orders-0.elsewhere"))
    said = child.next()
    assert isinstance(said, CleanedGroup)
    child.close()
    assert not directory.exists()
    world.directory.abandon()


def test_the_pace_is_kept() -> None:
    pace = Pace(100_000)
    began = time.monotonic()
    for _ in range(10):
        pace(1000)
    assert time.monotonic() - began >= 0.09


def test_a_process_that_fails_in_a_way_that_nobody_foresaw_says_why(tmp_path: Path) -> None:
    world = world_at(tmp_path / "data")
    result = compact(world.log, world.now, CleanerSettings(load_factor=0), ChildPass)
    assert isinstance(result, PassFailed)
    assert "ZeroDivisionError" in result.reason
    world.directory.close(world.now)


def test_a_pass_that_cannot_answer_any_more_ends_without_a_word(tmp_path: Path) -> None:
    """Of a broker that was killed, the end of stdout may be seen before that of stdin."""
    world = world_at(tmp_path / "data")
    command = [sys.executable, "-m", "tailrace.log.compaction.child"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=world.log.directory, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(spec_of(world).encode() + "\n")
        process.stdin.flush()
        assert process.wait(30) == 1
        assert process.stderr.read() == ""
    world.directory.close(world.now)
