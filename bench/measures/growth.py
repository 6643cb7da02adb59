"""How the broker's cost grows: with partitions, connections, history and the size of messages.

`python -m bench --growth` runs them all, `--only growth-partitions` one of them. What is counted is the broker's CPU
time, as the kernel counts it, for each request or each GB, so that neighbours on the machine disturb it little. Brokers
of all sizes are up at once and take turns, so that whatever drifts meets all of them alike.

Round trips are those of eight clients at once, with one request in flight each: for a single one that asks again and
again the loop stays awake and looks (`server/net/busy_poll`), and what it takes then is the time of the client.
"""

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

from bench.harness.bare_disk import GB, bare_writes
from bench.harness.batches import batch_of
from bench.harness.broker_process import BrokerProcess, Load, broker_process
from bench.harness.measure import Bench, Figure, Sample
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import base_offset, create_topic, fetch_frame, open_topic, produce_frame
from bench.harness.topics import delete_topic, make_topic
from bench.measures.history import GB as GIB
from bench.measures.history import write_history
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

_VERSION = 9
_CLIENTS = 8
_SHORT_ROUNDS = 15  # of what takes a third of a second
_PER_TOPIC = 1_000  # partitions
_LOGS_AT_ONCE = 100  # are made for a request; for more it has to ask again
_FOR_EVER_MS = 600_000
_DESCRIPTORS_TO_SPARE = 2_000
_SECONDS = 60  # at most, for what ends with its last message
_KEYS = 5_000
_HISTORY = "history"  # the topic that `write_history` writes to

Value = TypeVar("Value")
Brokers = dict[int, BrokerProcess]


def partitions(bench: Bench) -> list[Figure]:
    """Topics that hold a record in each partition, of which one is used; and producers that use many at once."""
    counts = (2, 4) if bench.quick else (10, 1_000, 10_000)
    with ExitStack() as stack:
        stack.enter_context(_descriptors(max(counts) + _DESCRIPTORS_TO_SPARE))
        brokers = _brokers(bench, stack, counts)
        figures = [_made(bench, broker, count) for count, broker in brokers.items()]
        figures += _saved(bench, brokers)
        figures += _at_rest("partitions", bench, brokers)
        figures += _round_trips("partitions", bench, brokers, "live", "{:,} partitions".format)
    return figures + _spread(bench)


def _spread(bench: Bench) -> list[Figure]:
    """Keyed messages of 1 KB, which go to each partition in turn; all by one client."""
    counts = (1, 3) if bench.quick else (1, 12, 100)

    def load(count: int) -> Load:
        return _produce(bench, broker, f"spread-{count}", 1000, keys=_KEYS)

    with bench.place.directory() as data, broker_process(data) as broker:
        for count in counts:
            make_topic(broker.bootstrap, f"spread-{count}", count)
        loads = _turns(bench, "spread", counts, load)
    return _produced("spread", counts, loads, "over {} partitions".format)


def connections(bench: Bench) -> list[Figure]:
    """Each of them waits in a Fetch for something to read, which does not come; one more pair produces elsewhere."""
    counts = (2, 20) if bench.quick else (10, 1_000, 3_000)
    with ExitStack() as stack:
        stack.enter_context(_descriptors(sum(counts) + _DESCRIPTORS_TO_SPARE))
        brokers = _brokers(bench, stack, counts)
        for count, broker in brokers.items():
            bench.tell(f"parking {count:,} connections")
            _park(broker, count, stack)
            _open(broker, "live")
        figures = _at_rest("connections", bench, brokers)
        return figures + _round_trips("connections", bench, brokers, "live", "{:,} parked connections".format)


def history(bench: Bench) -> list[Figure]:
    """In the partition that is written to; the measure itself adds 1.2 GB to each."""
    sizes = (0, 16 << 20) if bench.quick else (0, GIB, 8 * GIB)
    said = _with_history
    with ExitStack() as stack:
        directories = {size: stack.enter_context(bench.place.directory()) for size in sizes}
        with ExitStack() as running:
            brokers = {size: running.enter_context(broker_process(data)) for size, data in directories.items()}
            for size, broker in brokers.items():
                bench.tell(f"writing {size:,} bytes of history")
                write_history(broker, size) if size else _open(broker, _HISTORY)
            loads = _turns(bench, "history", sizes, lambda size: _produce(bench, brokers[size], _HISTORY, 1000))
            figures = _produced("history", sizes, loads, said)
            figures += _round_trips("history", bench, brokers, _HISTORY, said)
        starts = _turns(bench, "start", sizes, lambda size: _start_ms(directories[size]))
    title = "start to first ack, "
    return figures + [_figure(f"history/start/{size}", title + said(size), "ms", starts[size]) for size in sizes]


def message_size(bench: Bench) -> list[Figure]:
    """By the C client, uncompressed, in and out of the page cache. Each round has a topic of its own, which it deletes:
    else the later ones would get memory that the host has yet to give."""
    sizes = (100, 1_000) if bench.quick else (100, 1_000, 10_000, 100_000)
    with bench.place.directory() as data, broker_process(data) as broker:
        loads = _turns(bench, "message size", sizes, partial(_in_and_out, bench, broker))
    figures = []
    for size in sizes:
        for which, way in enumerate(("in", "out")):
            found = [both[which] for both in loads[size]]
            rates = [load.messages / load.seconds / 1e3 for load in found]
            name, title = f"size/{size}/{way}", f"messages of {size:,} B, {way}"
            figures.append(_figure(name, title, "s/GB", per_gb(size, found)))
            figures.append(_figure(f"{name}/rate", f"{title}: the client's rate", "k messages/s", rates))
    return figures


def _in_and_out(bench: Bench, broker: BrokerProcess, size: int) -> tuple[Load, Load]:
    topic = make_topic(broker.bootstrap, f"size-{size}-{time.monotonic_ns()}")
    produced = _produce(bench, broker, topic, size)
    consumed = broker.load("consume", topic, size, _SECONDS)
    delete_topic(broker.bootstrap, topic)
    return produced, consumed


# What they have in common


def _brokers(bench: Bench, stack: ExitStack, counts: Sequence[int]) -> Brokers:
    """One for each count, up until the stack is closed."""
    return {
        count: stack.enter_context(broker_process(stack.enter_context(bench.place.directory()))) for count in counts
    }


def _open(broker: BrokerProcess, topic: str) -> None:
    with RawConnection(broker.host, broker.port) as connection:
        open_topic(connection, topic)


def _made(bench: Bench, broker: BrokerProcess, count: int) -> Figure:
    bench.tell(f"making {count:,} partitions")
    before = broker.cpu_seconds()
    _make_partitions(broker, count)
    each = 1e3 * (broker.cpu_seconds() - before) / count
    _open(broker, "live")
    return _figure(f"partitions/made/{count}", f"making {count:,} partitions, for each", "ms of CPU", [each])


def _make_partitions(broker: BrokerProcess, count: int) -> None:
    """With a record in each: by itself a partition is only a name."""
    with RawConnection(broker.host, broker.port) as connection:
        for number in range(0, count, _PER_TOPIC):
            each = min(_PER_TOPIC, count - number)
            topic = make_topic(broker.bootstrap, f"many-{number}", each)
            for first in range(0, each, _LOGS_AT_ONCE):
                _fill(connection, topic, range(first, min(first + _LOGS_AT_ONCE, each)))


def _saved(bench: Bench, brokers: Brokers) -> list[Figure]:
    """What has been written to is checkpointed within a minute or so, once: that is no rest yet. Against the broker
    that has the fewest, which has hardly any to save."""
    bench.tell("waiting for checkpoints")
    before = {count: broker.cpu_seconds() for count, broker in brokers.items()}
    time.sleep(bench.pick(90, 0))
    taken = {count: broker.cpu_seconds() - before[count] for count, broker in brokers.items()}
    fewest = min(brokers)
    each = {count: 1e3 * (taken[count] - taken[fewest]) / (count - fewest) for count in brokers if count > fewest}
    title = "checkpointing {:,} partitions, for each".format
    return [_figure(f"partitions/saved/{count}", title(count), "ms of CPU", [each[count]]) for count in each]


def _fill(connection: RawConnection, topic: str, indexes: range) -> None:
    records = batch_of(170, now_ms=int(time.time() * 1000))
    data = [PartitionProduceData(index=index, records=records) for index in indexes]
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    answer = connection.ask(request, ProduceResponse, _VERSION)
    errors = {partition.error_code for partition in answer.responses[0].partition_responses}
    assert errors == {0}, f"a partition could not be filled: errors {errors}"


def _park(broker: BrokerProcess, count: int, stack: ExitStack) -> None:
    frame = fetch_frame("parked", 0, _FOR_EVER_MS)
    for number in range(count):
        connection = stack.enter_context(RawConnection(broker.host, broker.port))
        if not number:
            create_topic(connection, "parked")
        connection.send_frame(frame)


@contextmanager
def _descriptors(number: int) -> Iterator[None]:
    """As many as are needed, here and in the brokers that are started here, if the system lets us."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(before, number), most), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def _at_rest(name: str, bench: Bench, brokers: Brokers) -> list[Figure]:
    """Memory and CPU of brokers without clients."""
    bench.tell(f"{name}: at rest")
    before, start = {count: broker.cpu_seconds() for count, broker in brokers.items()}, time.perf_counter()
    time.sleep(bench.pick(30, 0) or 0.2)
    figures = []
    for count, broker in brokers.items():
        share = 100 * (broker.cpu_seconds() - before[count]) / (time.perf_counter() - start)
        title = f"at rest, {count:,} {name}"
        figures.append(_figure(f"{name}/rest/{count}/memory", f"{title}: memory", "MB", [broker.memory_bytes() / 1e6]))
        figures.append(_figure(f"{name}/rest/{count}/cpu", f"{title}: CPU", "% of a core", [share]))
    return figures


def _round_trips(name: str, bench: Bench, brokers: Brokers, topic: str, said: Callable[[int], str]) -> list[Figure]:
    """CPU for each acknowledged batch of one record, `acks=1`."""
    number = bench.pick(8_000, 80)

    def run(count: int) -> float:
        return _cpu_us_per_round_trip(brokers[count], topic, number)

    found = _turns(bench, name, tuple(brokers), run, _SHORT_ROUNDS)
    title = "acks=1 round trip, "
    return [_figure(f"{name}/round-trip/{count}", title + said(count), "µs of CPU", found[count]) for count in brokers]


def _cpu_us_per_round_trip(broker: BrokerProcess, topic: str, number: int) -> float:
    frame = produce_frame(topic, 1)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawConnection(broker.host, broker.port)) for _ in range(_CLIENTS)]
        for client in clients:  # their first requests take the slow path
            base_offset(client.exchange(frame))
        before = broker.cpu_seconds()
        for _ in range(number // _CLIENTS):
            for client in clients:
                client.send_frame(frame)
            for client in clients:
                client.receive_frame()
        return 1e6 * (broker.cpu_seconds() - before) / number


def _produced(
    name: str, sides: Sequence[int], loads: dict[int, list[Load]], said: Callable[[int], str]
) -> list[Figure]:
    """CPU for each GB of messages of 1 KB."""
    return [
        _figure(f"{name}/produce/{side}", f"produce 1 KB, {said(side)}", "s/GB", per_gb(1000, loads[side]))
        for side in sides
    ]


def _produce(bench: Bench, broker: BrokerProcess, topic: str, size: int, **options: object) -> Load:
    """A fixed amount, in memory that was used a moment ago."""
    amount = bench.pick(200_000_000, 1_000_000)
    bare_writes(bench, 2 * amount)
    return broker.load("produce", topic, size, _SECONDS, "1", count=amount // size, **options)


def per_gb(size: int, loads: Sequence[Load]) -> list[float]:
    """CPU seconds of the broker for each GB of values."""
    return [load.broker_cpu / (load.messages * size / GB) for load in loads]


def _start_ms(data: str) -> float:
    """From the start of the process until a message is acknowledged, after a clean stop."""
    begun = time.perf_counter()
    with broker_process(data) as broker:
        _open(broker, _HISTORY)
        return 1e3 * (time.perf_counter() - begun)


def _turns(
    bench: Bench, what: str, sides: Sequence[int], run: Callable[[int], Value], rounds: int = 5
) -> dict[int, list[Value]]:
    """What each side gave, round by round."""
    turns = [partial(run, side) for side in sides]
    found = bench.take_turns(what, bench.pick(rounds, 1), *turns, warm_up=bench.pick(1, 0))
    return dict(zip(sides, found, strict=True))


def _figure(name: str, title: str, unit: str, values: Sequence[float]) -> Figure:
    return Figure(f"growth/{name}", title, unit, Sample.of(values))


def _with_history(size: int) -> str:
    return f"{size / GIB:.2g} GiB of history"
