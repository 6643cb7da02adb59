"""What foreign tools print is read right, or not at all; and the report of a run has all that it found."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.harness import process_tree
from bench.harness.measure import Demand, Figure, Sample, compare
from bench.harness.place import FileSystem
from bench.harness.report import Disk, PeerInfo, Run, as_json
from bench.peers import markdown, plot, tools
from bench.peers.__main__ import MEASURES
from bench.peers.others import OTHERS, _absent, _figures
from bench.peers.throughput import FULL, QUICK, USUAL
from bench.programs import echo
from bench.programs.reader import next_offset
from tailrace.records.record import Record, encode_batch

PRODUCED = (
    "24985 records sent, 4997.0 records/sec (0.48 MB/sec), 3.2 ms avg latency, 310.0 ms max latency.\n"
    "50000 records sent, 4996.502448 records/sec (0.48 MB/sec), 2.49 ms avg latency, 312.00 ms max latency, "
    "1 ms 50th, 5 ms 95th, 31 ms 99th, 174 ms 99.9th.\n"
)
CONSUMED = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
    "2026-11-16 10:29:35:857, 2026-11-16 10:29:40:292, 0.4768, 0.1075, 5000, 1127.3957, 4124, 311, 1.5332, 16077.1704\n"
)


def test_the_summary_of_producer_performance_is_read_and_not_its_progress() -> None:
    assert tools.read_produced(PRODUCED) == tools.Produced(4996.502448, 1, 31, 174)


def test_the_rate_of_consumer_performance_is_that_without_the_rebalance() -> None:
    assert tools.read_consumed("WARNING: something, else\n" + CONSUMED) == 16077.1704


def test_the_mean_of_end_to_end_latency_is_read() -> None:
    printed = "0\t196.59\nAvg latency: 6.9546 ms\nPercentiles: 50th = 4, 99th = 47, 99.9th = 196\n"
    assert tools.read_mean_latency(printed) == 6.9546


@pytest.mark.parametrize("read", [tools.read_produced, tools.read_consumed, tools.read_mean_latency])
@pytest.mark.parametrize("printed", ["", "a, b\n", CONSUMED.splitlines()[0], PRODUCED.splitlines()[0]])
def test_a_tool_that_printed_no_summary_is_no_figure(read: object, printed: str) -> None:
    with pytest.raises(ValueError, match="printed no"):
        read(printed)  # type: ignore[operator]


def test_a_reader_goes_on_after_the_last_whole_batch() -> None:
    first, second = (bytearray(encode_batch([Record(at, 0, None, b"x" * 50) for at in range(3)])) for _ in range(2))
    second[:8] = (3).to_bytes(8)
    assert next_offset(b"") is None
    assert next_offset(first) == 3
    assert next_offset(first + second) == 6
    assert next_offset(first + second[:-1]) == 3
    assert next_offset(first[:30]) is None


def test_the_whole_matrix_has_each_case_once_and_the_usual_run_has_some_of_it() -> None:
    assert len(FULL) == len(set(FULL)) == 3 * 3 * 2 * 3
    assert set(QUICK) < set(FULL)
    assert set(USUAL) < set(FULL)


def some_run() -> Run:
    demands = [Demand("ratio", "most", 0.5, aim=0.25), Demand("ratio", "least", 0.97, aim=1.0), None]
    names = ("ack/1/p50", "produce/c/100/1/none", "unheard/of")
    figures = [
        compare(name, f"<{name}> & more", "µs", [1.0, 1.2, 1.4], [2.0, 2.5, 2.0], "Kafka", demanded=demand, note="note")
        for name, demand in zip(names, demands, strict=True)
    ]
    figures.append(Figure("memory/idle", "memory", "MB", Sample.of([3.0])))
    disk = Disk(FileSystem("ext4", "/dev/x"), 151.2, 1999.6)
    peers = (PeerInfo("Kafka", "4.3.1", "in the page cache", None), PeerInfo("NATS", "none", "synced", "no go"))
    started = datetime(2026, 11, 16, 12, 30, tzinfo=UTC)
    return Run(started, 61.5, True, 0.5, disk, figures, {"cold": "OSError: no"}, False, peers)


def test_a_report_has_every_figure_every_peer_and_every_crash(tmp_path: Path) -> None:
    page = markdown.write(some_run(), tmp_path).read_text()
    for figure in some_run().figures:
        assert figure.title in page
    assert "p50 151 µs, p99 2000 µs" in page
    assert "cannot be had here: no go" in page
    assert "- cold: OSError: no" in page
    assert "Of 2 demands 1 are met, 0 of them as well as aimed at" in page
    assert "**missed**" in page


def test_a_report_has_the_pictures_that_it_shows(tmp_path: Path) -> None:
    page = markdown.write(some_run(), tmp_path).read_text()
    shown = re.findall(r"\]\((\S+\.svg)\)", page)
    assert sorted(shown) == sorted(path.name for path in tmp_path.glob("*.svg"))
    assert len(shown) == 3
    for name in shown:
        ElementTree.parse(tmp_path / name)


def test_a_picture_holds_all_that_it_draws() -> None:
    figures = [compare("a/b", "a", "s", [0.004], [1.0], "x"), compare("a/c", "c", "s", [70.0], [1.0], "x")]
    axis = plot.Axis.around([0.004, 70])
    assert (axis.low, axis.high) == (0.002, 100)
    assert axis.x(axis.low) == plot.LABELS
    assert axis.x(axis.high) == plot.WIDTH - plot.VALUES
    assert plot.ratios("title", figures) is not None
    assert plot.ratios("title", [Figure("a/b", "a", "s", Sample.of([1.0]))]) is None


def test_json_says_what_its_documentation_says() -> None:
    import bench

    found = json.loads(json.dumps(as_json(some_run())))
    assert bench.__doc__ is not None
    for key in (*found, *found["figures"][0], *found["place"], *found["host"], *found["peers"][0]):
        assert re.search(rf"\b{key}\b", bench.__doc__), f"{key} is not documented"
    assert found["figures"][0]["demanded"] == {"of": "ratio", "bound": "most", "limit": 0.5, "aim": 0.25}


def test_a_peer_that_cannot_be_had_has_a_row_that_says_so() -> None:
    done = tools.Done(1000.0, 2.0)
    rows = _figures(OTHERS[0], [(done, done)], [(done, done)])
    absent = _absent(OTHERS[0], "no go", [(done, done)])
    assert absent.name == rows[0].name
    assert absent.against is None
    assert "no go" in absent.note
    assert "synced within 2 minutes" in rows[0].note


def test_each_measure_has_a_line_in_the_page_about_them() -> None:
    page = Path(__file__).parents[3].joinpath("docs/BENCHMARKS.md").read_text()
    assert [name for name in MEASURES if f"`{name}`" not in page] == []


def test_what_the_kernel_writes_for_somebody_is_seen(tmp_path: Path) -> None:
    before = process_tree.kernel_cpu_seconds()
    if before is None:
        pytest.skip("the kernel's threads are not to be seen in here")
    tmp_path.joinpath("much").write_bytes(bytes(64 << 20))
    os.sync()
    assert (process_tree.kernel_cpu_seconds() or 0) > before


def test_a_process_tree_has_the_time_and_memory_of_children_alive_and_ended() -> None:
    work = "sum(range(3_000_000))"
    script = f"import subprocess, sys; {work}; subprocess.run([sys.executable, '-c', '{work}']); print(); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ended = process_tree.ended_children(Path(f"/proc/{process.pid}/stat").read_text()) / os.sysconf("SC_CLK_TCK")
        assert 0 < ended < process_tree.cpu_seconds(process.pid)
        assert process_tree.memory_bytes(process.pid) > 1 << 20
        assert set(process_tree.tree(os.getpid())) >= {os.getpid(), process.pid}
        process.communicate(b"\n")


def test_a_process_that_has_ended_has_no_memory() -> None:
    assert process_tree.resident("Name:\tx\nState:\tZ (zombie)\n") == 0
    assert process_tree.resident("Name:\tx\nVmRSS:\t    2 kB\nThreads:\t1\n") == 2048


@pytest.mark.parametrize("how", ["answer", "sync", "look"])
def test_a_bare_server_answers_each_request(tmp_path: Path, how: str) -> None:
    file = None if how == "answer" else tmp_path / "file"
    times = echo.round_trips(20, how, file)
    assert len(times) == 20
    assert min(times) > 0
    if file is not None:
        assert file.stat().st_size == 20 * len(echo.REQUEST), "what it writes is what it got"


def test_bare_servers_say_what_a_gb_took_them(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert 0.01 < echo.stored(20 << 20, file, 1e9) < 100
    assert 0.01 < echo.sent(20 << 20, file, 1e9) < 100
    assert not file.exists()


@pytest.mark.slow
@pytest.mark.slow
def test_a_run_of_what_needs_no_kafka_measures_and_writes_its_report(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "bench.peers", "--quick", "--only", "sync", "--out", str(tmp_path / "out")]
    place = {"TAILRACE_BENCH_DIR": str(tmp_path / "data"), "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run(command, cwd=root, env=os.environ | place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(next((tmp_path / "out").glob("*.json")).read_text())
    assert [figure["name"] for figure in found["figures"]] == ["sync/1000"]
    assert found["figures"][0]["ours"]["median"] > 0
    assert not found["failures"]
    assert not list((tmp_path / "data").iterdir())
