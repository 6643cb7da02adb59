"""One damaged file in a data directory: the broker serves what was stored, or names the offsets that it cannot serve.

Every file of a data directory, one at a time, is damaged in every way of `DAMAGES`, after a clean stop and a kill. In
each case:

- the start succeeds; only damage to an internal log, to the format file or to the journal may refuse it, with an error
  of ours
- every stored offset is either served as it was stored or refused with CORRUPT_MESSAGE or KAFKA_STORAGE_ERROR; what is
  refused is named by the broker's damaged ranges, or its log is offline
- committed offsets are as they were committed, and a retry of an idempotent producer is recognised or refused
- no offset is given twice, neither by this start nor by the next one
- `log verify`, run before the start, reports damage wherever the broker cannot serve everything
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from brokers import a_batch, fetch_request, from_offset, only_partition, produce_request
from raw_client import RawClient

from tailrace.broker.core.losses import damaged_ranges
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.journal_file import FILE_NAME as JOURNAL
from tailrace.log.files.journal_file import read_journal
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TopicPartition, parse_partition
from tailrace.log.scan.restore import by_log
from tailrace.log.tools.locate import NoLogHere, locate
from tailrace.log.tools.verify import verify
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from tailrace.records.batch import split
from tailrace.records.record import Record, decode_records, encode_batch
from tailrace.testing import Broker
from tailrace.testing.faulty_files import FaultyFiles

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

ORDERS = TopicPartition("orders", 0)
TRIMMED = TopicPartition("orders", 1)
KEYED = TopicPartition("keyed", 0)
PARTITIONS = (ORDERS, TRIMMED, KEYED)
TRIMMED_START = 3
PRODUCER = 7_777_777
GROUP = "billing"
EXPLICIT = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR}
MAY_REFUSE_THE_START = ("__tailrace_metadata-0/", "__consumer_offsets-0/", "tailrace.format", "tailrace.journal")
CLEANER = ["--set", "log.cleaner.backoff.ms=50", "--set", "log.cleaner.min.cleanable.ratio=0.01"]
NO_CLEANER = ["--set", "log.cleaner.enable=false"]
WAIT_S = 60.0


@dataclass
class Stored:
    """What clients were told: the values by partition and offset, the ends, the committed offsets."""

    values: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    sequence: int = 0  # the next one of PRODUCER
    last_batch: tuple[int, bytes] = (0, b"")  # of PRODUCER: its offset, and its bytes as they were sent

    def add(self, partition: TopicPartition, offset: int, values: list[bytes]) -> None:
        known = self.values.setdefault(partition, {})
        known.update({offset + n: value for n, value in enumerate(values)})
        self.ends[partition] = offset + len(values)


@dataclass
class Template:
    """A data directory as a stop or a kill left it, and an older copy of it from an earlier clean stop."""

    data: Path
    older: Path
    stored: Stored


# Filling a directory


def produce(client: RawClient, partition: TopicPartition, batch: bytearray) -> int:
    answer = only_partition(client.ask(produce_request(batch, *partition), 12))
    assert answer.error_code == 0
    return int(answer.base_offset)


def produce_order(client: RawClient, stored: Stored, values: list[bytes]) -> None:
    batch = a_batch(
        *values,
        now_ms=int(time.time() * 1000),
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=stored.sequence,
    )
    sent = bytes(batch)
    offset = produce(client, ORDERS, batch)
    stored.add(ORDERS, offset, values)
    stored.sequence += len(values)
    stored.last_batch = offset, sent


def fill_orders(client: RawClient, stored: Stored, lot: random.Random, batches: int) -> None:
    for number in range(batches):
        produce_order(client, stored, [lot.randbytes(lot.choice([10, 3000, 60_000])) for _ in range(lot.randint(1, 3))])
        if number % 3 == 0:
            values = [lot.randbytes(90_000) for _ in range(2)]
            stored.add(TRIMMED, produce(client, TRIMMED, a_batch(*values, now_ms=int(time.time() * 1000))), values)


def fill_a_little(client: RawClient, stored: Stored, lot: random.Random, batches: int) -> None:
    for _ in range(batches):
        produce_order(client, stored, [lot.randbytes(100)])
        values = [lot.randbytes(100)]
        stored.add(TRIMMED, produce(client, TRIMMED, a_batch(*values, now_ms=int(time.time() * 1000))), values)


def make_journal(client: RawClient, stored: Stored, lot: random.Random, data: Path) -> None:
    """On return, the next broker has a journal from its start on."""
    deadline = time.monotonic() + WAIT_S
    while not (data / JOURNAL).exists():
        assert time.monotonic() < deadline
        fill_a_little(client, stored, lot, 1)


def fill_keyed(client: RawClient, stored: Stored, rounds: int) -> None:
    for number in range(rounds):
        record = Record(0, int(time.time() * 1000), b"key %d" % (number % 4), b"value %d" % number)
        offset = produce(client, KEYED, encode_batch([record]))
        stored.ends[KEYED] = offset + 1
        time.sleep(0.003)  # so that the next one begins another segment


def create_topics(client: RawClient) -> None:
    keyed = {"cleanup.policy": "compact", "segment.ms": "1"}
    wanted: list[tuple[str, int, dict[str, str]]] = [
        ("orders", 2, {"segment.bytes": str(1 << 20)}),
        ("keyed", 1, keyed),
        ("untouched", 1, {}),
    ]
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, count, configs in wanted
    ]
    answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    assert not any(topic.error_code for topic in answer.topics)


def commit(client: RawClient, stored: Stored, partition: TopicPartition, offset: int) -> None:
    place = OffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name=partition.topic, partitions=[place])
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = only_partition(client.ask(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 8))
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            break
        assert time.monotonic() < deadline
    assert answer.error_code == 0
    stored.committed[partition] = offset


def trim(client: RawClient, stored: Stored) -> None:
    wanted = DeleteRecordsPartition(partition_index=TRIMMED.partition, offset=TRIMMED_START)
    topic = DeleteRecordsTopic(name=TRIMMED.topic, partitions=[wanted])
    answer = client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 2)
    assert only_partition(answer).error_code == 0
    stored.values[TRIMMED] = {offset: one for offset, one in stored.values[TRIMMED].items() if offset >= TRIMMED_START}


def read_keyed(client: RawClient, stored: Stored) -> None:
    """What compaction left is what has to be there."""
    offset, values = 0, {}
    while offset < stored.ends[KEYED]:
        answer = only_partition(client.ask(fetch_request(from_offset(offset), topic="keyed", max_wait_ms=0), 12))
        assert answer.error_code == 0
        data = bytes(answer.records or b"")
        for position, header in split(data):
            values.update({record.offset: record.value or b"" for record in decode_records(data, position)})
            offset = header.next_offset
    stored.values[KEYED] = values


@contextmanager
def serving(data: Path, *options: str, kill: bool = False) -> Iterator[tuple[BrokerProcess, RawClient]]:
    with BrokerProcess(data, *options, "--set", "tailrace.journal.bytes=1048576") as broker:
        with RawClient(broker.address) as client:
            yield broker, client
        if kill:
            broker.kill()
        else:
            assert broker.stop() == 0


@pytest.fixture(scope="module", params=["stopped", "killed"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Each clean stop is a checkpoint of all logs; the last of three brokers is stopped or killed. After a kill, what
    lies behind the checkpoint and is not in the journal could not be told from a write that never reached the disk:
    so the last broker seals no segment, and all that it acknowledges is in the journal.
    """
    path = tmp_path_factory.mktemp(request.param)
    data, older, stored, lot = path / "data", path / "older", Stored(), random.Random(1)
    with serving(data, *CLEANER) as (broker, client):
        create_topics(client)
        fill_orders(client, stored, lot, 25)
        fill_keyed(client, stored, 12)
        commit(client, stored, ORDERS, 5)
        trim(client, stored)
        while "compacted" not in broker.said:
            time.sleep(0.05)
    shutil.copytree(data, older)
    with serving(data, *NO_CLEANER) as (_, client):
        fill_orders(client, stored, lot, 45)
        fill_keyed(client, stored, 6)
        commit(client, stored, ORDERS, 9)
        commit(client, stored, KEYED, 2)
        make_journal(client, stored, lot, data)
    segments = sorted(data.rglob("*.log"))
    with serving(data, *NO_CLEANER, kill=request.param == "killed") as (_, client):
        fill_a_little(client, stored, lot, 8)
        commit(client, stored, ORDERS, 12)
        read_keyed(client, stored)
    assert sorted(data.rglob("*.log")) == segments
    if request.param == "killed":
        found = by_log(read_journal(OperatingSystemFiles(), str(data)))
        assert {ORDERS, TRIMMED} <= {parse_partition(name.decode()) for name, _ in found}
    return Template(data, older, stored)


# Damaging a file

Damage = Callable[[Path, Path | None], bool]  # the file, and its older copy; False where this damage changes nothing


def remove(path: Path, older: Path | None) -> bool:
    path.unlink()
    return True


def empty(path: Path, older: Path | None) -> bool:
    was_empty = not path.stat().st_size
    path.write_bytes(b"")
    return not was_empty


def truncate_half(path: Path, older: Path | None) -> bool:
    return _rewrite(path, lambda content: content[: len(content) // 2])


def truncate_a_byte(path: Path, older: Path | None) -> bool:
    return _rewrite(path, lambda content: content[:-1])


def flip_a_bit(path: Path, older: Path | None, share: float = 0.3) -> bool:
    def flipped(content: bytes) -> bytes:
        changed = bytearray(content)
        if changed:
            changed[int(len(changed) * share)] ^= 0x04
        return bytes(changed)

    return _rewrite(path, flipped)


def flip_a_late_bit(path: Path, older: Path | None) -> bool:
    return flip_a_bit(path, older, 0.95)


def shift(path: Path, older: Path | None) -> bool:
    return _rewrite(path, lambda content: content[: len(content) // 3] + b"shifted" + content[len(content) // 3 :])


def replace_by_older_copy(path: Path, older: Path | None) -> bool:
    if older is None or older.read_bytes() == path.read_bytes():
        return False
    shutil.copy(older, path)
    return True


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> bool:
    content = path.read_bytes()
    changed = change(content)
    path.write_bytes(changed)
    return changed != content


DAMAGES: dict[str, Damage] = {
    "removed": remove,
    "emptied": empty,
    "truncated by half": truncate_half,
    "truncated by a byte": truncate_a_byte,
    "a bit flipped": flip_a_bit,
    "a late bit flipped": flip_a_late_bit,
    "shifted": shift,
    "an older copy": replace_by_older_copy,
}


class UnreadableFile(FaultyFiles):
    """Reads of one file fail, as a disk with a bad sector has it."""

    def __init__(self, path: Path) -> None:
        super().__init__(OperatingSystemFiles())
        self._path = str(path)

    def called(self, kind: str, path: str) -> None:
        super().called(kind, path)
        if kind == "read_at" and path == self._path:
            raise OSError(EIO, "Input/output error", path)


# Looking at what became of it


class Case:
    def __init__(self, template: Template, data: Path, name: str, files: Any) -> None:
        self.stored = template.stored
        self.data = data
        self.name = name
        self.files = files
        self.complaints: list[str] = []
        self.lost: dict[TopicPartition, set[int]] = {partition: set() for partition in PARTITIONS}
        self.ends = dict(self.stored.ends)

    def run(self) -> list[str]:
        healthy = self._verify()
        for _ in range(2):
            broker = self._start(healthy)
            if broker is None:
                return self.complaints
            try:
                with RawClient((broker.host, broker.port)) as client:
                    self._look(broker, client)
            finally:
                broker.stop()
            if healthy and any(self.lost.values()):
                self._complain(f"verify says healthy, and these are not served: {self._lost()}")
        return self.complaints

    def _complain(self, text: str) -> None:
        self.complaints.append(text)

    def _lost(self) -> dict[str, list[int]]:
        return {str(partition): sorted(offsets)[:5] for partition, offsets in self.lost.items() if offsets}

    def _verify(self) -> bool:
        try:
            return verify(self.files, locate(self.files, str(self.data))).healthy
        except (NoLogHere, LogError, OSError) as error:
            if isinstance(error, OSError) and not error.filename:
                self._complain(f"verify does not name the file that it cannot read: {error!r}")
            return False

    def _start(self, healthy: bool) -> Broker | None:
        # What is due in the compacted log is what the template has: it is not compacted once more.
        broker = Broker({"log.cleaner.enable": "false"}, data=str(self.data), files=self.files)
        try:
            return broker.start()
        except (LogError, OSError) as error:
            if not self.name.startswith(MAY_REFUSE_THE_START):
                self._complain(f"the start is refused: {error!r}")
            elif healthy and self.name not in ("tailrace.format", "tailrace.journal"):  # of which verify reads nothing
                self._complain(f"verify says healthy, and the start is refused: {error!r}")
        except BaseException as error:  # noqa: BLE001 - whatever else is raised is a bug
            self._complain(f"the start fails: {error!r}")
        return None

    def _look(self, broker: Broker, client: RawClient) -> None:
        for partition in PARTITIONS:
            for offset in range(min(self.stored.values[partition], default=0), self.stored.ends[partition]):
                self._fetch(client, partition, offset)
            self._check_that_losses_are_named(broker, partition)
        self._check_committed(client)
        self._retry(client)
        for partition in PARTITIONS:
            self._append(client, partition)

    def _fetch(self, client: RawClient, partition: TopicPartition, offset: int) -> None:
        request = fetch_request(
            from_offset(offset, partition.partition, 1), topic=partition.topic, max_wait_ms=0, min_bytes=0
        )
        try:
            answer = only_partition(client.ask(request, 12))
        except OSError as error:
            self._complain(f"{partition} at {offset}: {error!r}")
            raise
        if answer.error_code:
            if answer.error_code not in EXPLICIT:
                self._complain(f"{partition} at {offset} is answered with {ErrorCode(answer.error_code)!r}")  # type: ignore[call-arg]
            self.lost[partition].add(offset)
            return
        due = min((known for known in self.stored.values[partition] if known >= offset), default=None)
        data = bytes(answer.records or b"")
        got = {
            record.offset: record.value or b""
            for position, _ in split(data)
            for record in decode_records(data, position)
            if record.offset >= offset
        }
        if due is None:
            if any(one < self.stored.ends[partition] for one in got):
                self._complain(f"{partition} at {offset} has records that were never stored: {sorted(got)}")
        elif min(got, default=None) != due:
            self._complain(f"{partition} at {offset}: {due} is due, and the first record is {min(got, default=None)}")
        elif any(self.stored.values[partition].get(one) != value for one, value in got.items()):
            self._complain(f"{partition} at {offset} has other records than were stored")

    def _check_that_losses_are_named(self, broker: Broker, partition: TopicPartition) -> None:
        log = broker.node.directory.logs.get(partition)
        if log is None or log.offline is not None:
            return
        named: set[int] = set()
        for bad in damaged_ranges(broker.node.directory):
            if bad.file.startswith(f"{partition}/"):
                named |= set(range(bad.first_offset, bad.last_offset + 1))
        if unnamed := self.lost[partition] - named:
            self._complain(f"{partition}: refused, and named by no damaged range: {sorted(unnamed)[:5]}")

    def _check_committed(self, client: RawClient) -> None:
        topics = [
            OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])
            for partition in self.stored.committed
        ]
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = client.ask(OffsetFetchRequest(group_id=GROUP, topics=topics), 7)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            assert time.monotonic() < deadline
        found = {
            TopicPartition(topic.name, place.partition_index): place.committed_offset
            for topic in answer.topics
            for place in topic.partitions
            if not place.error_code
        }
        if not answer.error_code and found != self.stored.committed:
            self._complain(f"the committed offsets are {found}, not {self.stored.committed}")

    def _retry(self, client: RawClient) -> None:
        """The last batch of the idempotent producer comes again: it has its offset already, or is refused."""
        offset, sent = self.stored.last_batch
        answer = only_partition(client.ask(produce_request(bytearray(sent), *ORDERS), 12))
        if not answer.error_code and answer.base_offset != offset and not self.lost[ORDERS]:
            self._complain(f"a retry was stored twice: at {offset}, and at {answer.base_offset}")
        if not answer.error_code and answer.base_offset >= self.ends[ORDERS]:
            self.ends[ORDERS] = answer.base_offset + 1000  # its records are new ones to whoever counts

    def _append(self, client: RawClient, partition: TopicPartition) -> None:
        record = Record(0, int(time.time() * 1000), b"new", b"new")
        answer = only_partition(client.ask(produce_request(encode_batch([record]), *partition), 12))
        if answer.error_code:
            if answer.error_code not in EXPLICIT:
                self._complain(f"an append to {partition} is answered with {ErrorCode(answer.error_code)!r}")  # type: ignore[call-arg]
        elif answer.base_offset < self.ends[partition] - (1000 if self.ends[partition] > 10_000 else 0):
            self._complain(f"{partition} gives {answer.base_offset} again: it had ended at {self.ends[partition]}")
        else:
            self.ends[partition] = answer.base_offset + 1


def files_of(data: Path) -> Iterator[str]:
    for path in sorted(data.rglob("*")):
        if path.is_file() and path.name != ".lock":
            yield str(path.relative_to(data))


def run_cases(template: Template, tmp_path: Path, damage: Damage | None) -> dict[str, list[str]]:
    found = {}
    for number, name in enumerate(files_of(template.data)):
        data = tmp_path / f"{number}"
        shutil.copytree(template.data, data)
        older = template.older / name
        if damage is not None and not damage(data / name, older if older.exists() else None):
            shutil.rmtree(data)
            continue
        files = OperatingSystemFiles() if damage is not None else UnreadableFile(data / name)
        if complaints := Case(template, data, name, files).run():
            found[name] = complaints
        shutil.rmtree(data)
    return found


def report(found: dict[str, list[str]]) -> str:
    return "\n".join(f"{name}: {complaint}" for name, complaints in found.items() for complaint in complaints)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_costs_no_offset_silently(template: Template, damage: str, tmp_path: Path) -> None:
    found = run_cases(template, tmp_path, DAMAGES[damage])
    assert not found, report(found)


def test_an_unreadable_file_costs_no_offset_silently(template: Template, tmp_path: Path) -> None:
    found = run_cases(template, tmp_path, None)
    assert not found, report(found)


def test_an_undamaged_directory_is_served_whole(template: Template, tmp_path: Path) -> None:
    data = shutil.copytree(template.data, tmp_path / "data")
    case = Case(template, data, "", OperatingSystemFiles())
    assert case.run() == []
    assert not any(case.lost.values())
