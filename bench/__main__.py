"""The command line: `python -m bench --help`."""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench.harness.place import VARIABLE
from bench.harness.report import show, write_json
from bench.harness.runner import run
from bench.table import (
    GATEWAY_MEASURES,
    GROWTH_MEASURES,
    MEASURES,
    MONITOR_MEASURES,
    QUEUE_MEASURES,
    SPARK_MEASURES,
    UPKEEP_MEASURES,
)

ALL = (
    MEASURES | UPKEEP_MEASURES | GROWTH_MEASURES | MONITOR_MEASURES | QUEUE_MEASURES | GATEWAY_MEASURES | SPARK_MEASURES
)


def main() -> int:
    options = _parser().parse_args()
    measures = {name: ALL[name] for name in options.only or options.chosen}
    done = run(measures, quick=options.quick, given=nullcontext)
    show(done)
    if options.json is not None:
        write_json(done, options.json)
    return 1 if done.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures tailrace against the bare system.")
    parser.add_argument("--quick", action="store_true", help="a short run, of a minute at most")
    chosen: dict[str, Any] = {"action": "store_const", "dest": "chosen"}
    parser.add_argument("--spark", const=SPARK_MEASURES, help="those of Spark, against its own connector", **chosen)
    parser.add_argument(
        "--upkeep", const=UPKEEP_MEASURES, help="those of much history, 30 GB of it, and of compaction", **chosen
    )
    parser.add_argument(
        "--growth", const=GROWTH_MEASURES, help="how cost grows: partitions, connections, history, size", **chosen
    )
    parser.add_argument(
        "--monitor", const=MONITOR_MEASURES, help="what the monitor takes, and takes from others", **chosen
    )
    parser.add_argument("--queues", const=QUEUE_MEASURES, help="those of share groups", **chosen)
    parser.add_argument(
        "--gateway", const=GATEWAY_MEASURES, help="what the gateway takes, and its rates beside Kafka's wire", **chosen
    )
    parser.set_defaults(chosen=MEASURES)
    parser.add_argument("--only", action="append", choices=list(ALL), help="run this measure; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    parser.epilog = f"Data lies below ${VARIABLE} or the system's temporary directory, and is removed."
    return parser


if __name__ == "__main__":
    sys.exit(main())
