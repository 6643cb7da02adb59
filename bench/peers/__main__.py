"""The command line: `python -m bench.peers --help`."""

import argparse
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path

import tailrace
from bench.harness.measure import Bench, Figure
from bench.harness.place import VARIABLE
from bench.harness.report import PeerInfo, show
from bench.harness.runner import run
from bench.measures import history as long_history
from bench.peers import catch_up, crowd, footprint, kafka, latency, markdown, others, queues, throughput, transactions
from bench.peers.session import KAFKA, KAFKA_SYNCING, Session, is_full

PATIENCE_S = 45  # for the rounds of one comparison, so that a run takes at most half an hour on a slow machine, too
LEEWAY_S = 6 * 60  # for what is close, likewise
RESULTS = Path(__file__).parents[1] / "results"


def history(session: Session) -> list[Figure]:
    return long_history.throughput(session.bench)


# In the order in which they run. Memory is the last: its peak is that of the whole run.
MEASURES: dict[str, Callable[[Session], Iterable[Figure]]] = {
    "start": footprint.start,
    "partitions": footprint.metadata,
    "produce": throughput.produce,
    "consume": throughput.consume,
    "sync": throughput.syncing,
    "unsynced": throughput.unsynced,
    "ack": latency.acknowledged,
    "end-to-end": latency.end_to_end,
    "end-to-end-java": latency.end_to_end_java,
    "half": latency.half_of_peak,
    "crowd": crowd.small_producers,
    "fan-out": crowd.fan_out,
    "transactions": transactions.transactions,
    "cold": catch_up.cold,
    "others": others.others,
    "queues": queues.queues,
    "history": history,
    "memory": footprint.memory,
    "memory-monitor": footprint.with_monitor,
}


def main() -> int:
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the brokers are ended, too
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # Kafka has a file open for each partition
    measures = {name: MEASURES[name] for name in options.only or MEASURES}
    done = run(
        measures,
        quick=options.quick,
        given=_session,
        full=is_full(),
        patience_s=inf if is_full() else PATIENCE_S,
        leeway_s=LEEWAY_S,
        peers=_peers(),
    )
    show(done)
    print(f"report: {markdown.write(done, options.out)}")
    return 1 if done.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Measures tailrace side by side with others."
    )
    parser.add_argument("--quick", action="store_true", help="little of everything: shows that it works, and no more")
    parser.add_argument("--only", action="append", choices=list(MEASURES), help="run this measure; may be repeated")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="where the report goes")
    parser.epilog = f"FULL=1 runs the whole matrix. Data lies below ${VARIABLE} or the system's temporary directory."
    return parser


@contextmanager
def _session(bench: Bench) -> Iterator[Session]:
    with ExitStack() as stack:
        yield Session(bench, stack, full=is_full())


def _peers() -> tuple[PeerInfo, ...]:
    missing = kafka.missing()
    return (
        PeerInfo("tailrace", tailrace.__version__, "acks=all: synced; acks=1: in the page cache", None),
        PeerInfo(KAFKA, kafka.VERSION, "in the page cache, with acks=1 and with acks=all", missing),
        PeerInfo(KAFKA_SYNCING, kafka.VERSION, "synced: log.flush.interval.messages=1", missing),
        *(PeerInfo(one.name, others.version(one), one.durability, others.missing(one)) for one in others.OTHERS),
    )


if __name__ == "__main__":
    sys.exit(main())
