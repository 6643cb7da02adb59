"""Queues: what a deep share partition takes, whether its depth slows it down, and how late records for later come."""

import json
import subprocess
import sys
from functools import partial

from bench.harness.broker_process import broker_process
from bench.harness.measure import Bench, Demand, Figure, Sample, compare, percentile

PARKED, ACQUIRED = 1_000_000, 100_000
MEMORY_MB_MAX = 60
RATE, DELAY_MS, LATE_MS_MAX = 1_000, 1_000, 150


def depth(bench: Bench) -> list[Figure]:
    """A backlog of ten million records, a million parked and 100,000 acquired, beside an empty partition."""
    parked, acquired = bench.pick(PARKED, PARKED // 100), bench.pick(ACQUIRED, ACQUIRED // 100)
    bench.tell(f"a share partition with {parked} records parked")
    command = [sys.executable, "-m", "bench.programs.share_partition", str(parked), str(acquired)]
    done = subprocess.run([*command, str(bench.pick(15, 3))], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    title = f"a share partition, {parked} records parked and {acquired} acquired"
    return [
        Figure(
            "queues/depth/memory", f"{title}: memory", "MB", Sample.of([found["memory_mb"]]),
            demanded=Demand("ours", "most", MEMORY_MB_MAX),
        ),
        compare(
            "queues/depth/rate", f"{title}: accepting one by one", "records/s", found["deep"], found["empty"],
            "an empty one", demanded=Demand("ratio", "least", 0.9), note="the state only: no log, no network",
        ),
    ]  # fmt: skip


def delay(bench: Bench) -> list[Figure]:
    """Records with a header that says when, 1,000 of them in a second: how late they come, beside those without."""
    sides = partial(_late_ms, bench, DELAY_MS), partial(_late_ms, bench, 0)
    delayed, others = bench.take_turns("records for later", bench.pick(5, 1), *sides, warm_up=0)
    title = f"{RATE} records a second, each for {DELAY_MS} ms later: how late, {{}}"
    figures = []
    for name, percent, demanded in (("p50", 50, None), ("p99", 99, Demand("ours", "most", LATE_MS_MAX))):
        late, at_once = ([percentile(side, percent) for side in sides_of] for sides_of in (delayed, others))
        figures.append(
            compare(
                f"queues/delay/{name}", title.format(name), "ms", late, at_once, "those for at once",
                kind="difference", demanded=demanded,
            )
        )  # fmt: skip
    return figures


def _late_ms(bench: Bench, delay_ms: int) -> list[float]:
    with bench.place.directory() as data, broker_process(data) as broker:
        arguments = [broker.host, str(broker.port), str(RATE), str(bench.pick(10, 1)), str(delay_ms)]
        command = [sys.executable, "-m", "bench.programs.delayed", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
    return [float(late) for late in json.loads(done.stdout)]
