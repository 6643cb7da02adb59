"""One side of a comparison: a broker, and a client that measures what it is asked for.

    python -m bench.guard.side

Reads the names of paths from stdin, one per line, measures each once and prints the value. Uses the `tailrace` and the
`bench` that PYTHONPATH names.
"""

import subprocess
import sys

from bench.guard.work import APPEND, BROKER_WORK, prepare_fetch
from bench.harness.bare_disk import bare_writes
from bench.harness.broker_process import BrokerProcess, broker_process, environment
from bench.harness.measure import Bench
from bench.harness.place import temporary_place

READY = "ready"
OPTIONS = ("--set", "tailrace.awake.processors=0")  # the host's power policy is the operator's, not the broker's


def main() -> None:
    with temporary_place() as place, place.directory() as data, broker_process(data, *OPTIONS) as broker:
        prepare_fetch(broker)
        bench = Bench(place, quick=False, tell=lambda _: None)
        print(READY, flush=True)
        for line in sys.stdin:
            print(measure(line.strip(), bench, broker), flush=True)


def measure(name: str, bench: Bench, broker: BrokerProcess) -> float:
    if name == APPEND:
        command = [sys.executable, "-m", "bench.guard.append"]
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=120)
        return float(done.stdout)
    work = BROKER_WORK[name]
    if work.writes:
        bare_writes(bench, work.writes)
    return work.run(broker)


if __name__ == "__main__":
    main()
