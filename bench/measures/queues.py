"""Queues: what the state of a deep share partition takes, and whether its depth slows it down."""

import json
import subprocess
import sys

from bench.harness.measure import Bench, Demand, Figure, Sample, compare

PARKED, ACQUIRED = 1_000_000, 100_000
MEMORY_MB_MAX = 60


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
