"""Apache Kafka's own dump tool reads what we write, and finds in it what we put there."""

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import parts
import pytest
from compactions import World, compact
from compactions import batches_of as stored_batches

from tailrace.log.compaction.messages import PassResult
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.index import AbortedTransaction
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, TopicPartition
from tailrace.log.log import Log
from tailrace.log.recovery.recovery import open_log
from tailrace.records.batch import read_header, split
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, decode_records, encode_batch

pytestmark = pytest.mark.needs("kafka")

KAFKA_SEGMENT = Path(__file__).parents[1] / "data" / "kafka-segment" / "00000000000000000000.log"
NOW = 1_700_000_000_000


def run_tool(directory: Path, suffix: str, *options: str) -> tuple[list[str], list[str]]:
    """What Kafka says of the files with that suffix, and what it complains of, line by line."""
    names = sorted(path.name for path in directory.glob(f"*{suffix}"))
    assert names
    command = ["java", "-cp", f"{parts.kafka_jars()}/*", "org.apache.kafka.tools.DumpLogSegments", *options]
    result = subprocess.run([*command, "--files", ",".join(names)], cwd=directory, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    expected = [r"SLF4J: .*", *(_always_said_of(directory / name) for name in names)]
    complaints = re.sub(rf"^(?:{'|'.join(expected)})\n", "", result.stderr, flags=re.MULTILINE)
    return result.stdout.splitlines(), complaints.splitlines()


def _always_said_of(log: Path) -> str:
    """The tool expects every file to begin with offset 0, whoever wrote it: it counts from -1 in each."""
    base_offset = int(log.name.split(".")[0])
    return rf"Non-consecutive offsets in {re.escape(str(log))}\n  -1 is followed by {base_offset}"


def dump(directory: Path, suffix: str, *options: str) -> dict[str, list[str]]:
    """What Kafka says of each of the files, by name; it has nothing to complain of."""
    lines, complaints = run_tool(directory, suffix, *options)
    assert complaints == []
    said: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("Dumping "):
            of_one = said[line.removeprefix("Dumping ")] = []
        else:
            of_one.append(line)
    assert list(said) == sorted(path.name for path in directory.glob(f"*{suffix}"))
    return said


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


@dataclass
class Written:
    """A directory of ours, closed cleanly, and what was put into it."""

    directory: Path
    batches: list[dict[str, str]] = field(default_factory=list)  # as Kafka names their fields
    records: list[str] = field(default_factory=list)  # as Kafka prints them
    aborted: list[AbortedTransaction] = field(default_factory=list)


class Writer:
    def __init__(self, log: Log, written: Written) -> None:
        self._log = log
        self._written = written
        self._sequences: dict[int, int] = {}

    def send(
        self, records: list[Record], *, codec: Codec = Codec.NONE, producer: int = -1, transactional: bool = False
    ) -> int:
        sequence = self._sequences.get(producer, 0) if producer >= 0 else -1
        epoch = 2 if producer >= 0 else -1
        data = encode_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        appended = self._log.append(data, NOW)
        last_sequence = sequence + len(records) - 1 if producer >= 0 else -1
        self._sequences[producer] = last_sequence + 1
        self._note(appended.base_offset, len(records), producer, epoch, sequence, last_sequence, transactional, codec)
        for number, record in enumerate(records):
            self._written.records.append(
                f"| offset: {appended.base_offset + number} CreateTime: {record.timestamp} keySize: {size(record.key)} "
                f"valueSize: {size(record.value)} sequence: {sequence + number if producer >= 0 else -1} "
                f"headerKeys: [{','.join(key for key, _ in record.headers)}]"
                + ("" if record.key is None else f" key: {record.key.decode()}")
                + ("" if record.value is None else f" payload: {record.value.decode()}")
            )
        return appended.base_offset

    def mark(self, kind: Marker, producer: int) -> int:
        appended = self._log.append(encode_marker(kind, producer, 2, 9, NOW), NOW)
        self._note(appended.base_offset, 1, producer, 2, -1, -1, True, Codec.NONE, control=True)
        self._written.records.append(
            f"| offset: {appended.base_offset} CreateTime: {NOW} keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
            f"endTxnMarker: {kind.name} coordinatorEpoch: 9"
        )
        return appended.base_offset

    def _note(
        self,
        offset: int,
        count: int,
        producer: int,
        epoch: int,
        sequence: int,
        last_sequence: int,
        transactional: bool,
        codec: Codec,
        control: bool = False,
    ) -> None:
        self._written.batches.append(
            {
                "baseOffset": str(offset),
                "lastOffset": str(offset + count - 1),
                "count": str(count),
                "baseSequence": str(sequence),
                "lastSequence": str(last_sequence),
                "producerId": str(producer),
                "producerEpoch": str(epoch),
                "partitionLeaderEpoch": "0",
                "isTransactional": str(transactional).lower(),
                "isControl": str(control).lower(),
                "magic": "2",
                "compresscodec": codec.name.lower(),
                "isvalid": "true",
            }
        )


def size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def some_records(number: int) -> list[Record]:
    return [
        Record(
            n,
            NOW + 10 * number + n,
            None if n % 3 == 0 else b"key %d" % n,
            None if n % 4 == 1 else b"value %d of batch %d %s" % (n, number, b"." * 50),
            (("h", b"x"), ("empty", None)) if n % 2 else (),
        )
        for n in range(5)
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    path = tmp_path_factory.mktemp("data")
    directory = DataDirectory(
        OperatingSystemFiles(), str(path), LogConfig(segment_bytes=6000, index_interval_bytes=500)
    )
    log = directory.create(TopicPartition("words", 0))
    written = Written(path / "words-0")
    writer = Writer(log, written)
    for number in range(60):
        writer.send(some_records(number), codec=Codec(number % 5), producer=7 if number % 2 else -1)
        if number % 6 == 0:
            producer = 100 + number
            first = writer.send(some_records(number), producer=producer, transactional=True)
            writer.send(some_records(number), producer=producer, transactional=True, codec=Codec.ZSTD)
            kind = Marker.ABORT if number % 12 == 0 else Marker.COMMIT
            last = writer.mark(kind, producer)
            if kind is Marker.ABORT:
                written.aborted.append(AbortedTransaction(producer, first, last, last + 1))
        if number == 30:
            directory.checkpoint(NOW)
    writer.send(some_records(60), producer=8, transactional=True)  # and never decided
    directory.checkpoint(NOW)
    assert len(log.segments) > 2
    directory.close(NOW)
    return written


def test_kafka_reads_every_batch_and_record_that_we_write(written: Written) -> None:
    said = dump(written.directory, LOG, "--deep-iteration", "--print-data-log")
    lines = [line for name in said for line in said[name]]
    starts = [line for line in lines if line.startswith("Log starting offset: ")]
    assert starts == [f"Log starting offset: {int(name.split('.')[0])}" for name in said]
    batches = [fields(line) for line in lines if line.startswith("baseOffset: ")]
    assert [{key: batch[key] for key in written.batches[0]} for batch in batches] == written.batches
    assert [line for line in lines if line.startswith("| ")] == written.records
    assert len(lines) == len(starts) + len(batches) + len(written.records), "nothing else is said"


def test_kafka_s_batches_lie_where_ours_do(written: Written) -> None:
    for name, lines in dump(written.directory, LOG).items():
        batches = [fields(line) for line in lines if line.startswith("baseOffset: ")]
        ours = split((written.directory / name).read_bytes())
        assert [(int(batch["position"]), int(batch["size"]), int(batch["crc"])) for batch in batches] == [
            (position, header.size, header.crc) for position, header in ours
        ]


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_our_indexes_pass_kafka_s_checks(written: Written, suffix: str) -> None:
    for name, lines in dump(written.directory, suffix, "--index-sanity-check").items():
        assert lines == [f"{name} passed sanity check."]
    assert set(map(tuple, dump(written.directory, suffix, "--verify-index-only").values())) == {()}, "no complaint"


@pytest.mark.parametrize(("suffix", "byte"), [(INDEX, 3), (TIME_INDEX, 7)])
def test_kafka_complains_of_an_index_that_is_wrong(written: Written, tmp_path: Path, suffix: str, byte: int) -> None:
    """So that no complaint means something."""
    name = "00000000000000000000"
    for each in (LOG, INDEX, TIME_INDEX):
        shutil.copy(written.directory / f"{name}{each}", tmp_path)
    index = bytearray((tmp_path / f"{name}{suffix}").read_bytes())
    index[byte] += 1  # the offset, or the timestamp, of the first entry
    (tmp_path / f"{name}{suffix}").write_bytes(index)
    _, complaints = run_tool(tmp_path, suffix, "--verify-index-only")
    assert "mismatch" in complaints[0].lower()


def batches_of(log: Path) -> list[tuple[int, int, int]]:
    """Position, last offset and largest timestamp of each batch."""
    return [(position, header.last_offset, header.max_timestamp) for position, header in split(log.read_bytes())]


def test_kafka_finds_in_our_offset_indexes_the_batches_they_name(written: Written) -> None:
    for name, lines in dump(written.directory, INDEX).items():
        entries = [fields(line) for line in lines]
        assert len(entries) >= 3
        batches = batches_of(written.directory / name.replace(INDEX, LOG))
        where = {position: last_offset for position, last_offset, _ in batches}
        assert [where[int(entry["position"])] for entry in entries] == [int(entry["offset"]) for entry in entries]


def test_kafka_finds_in_our_time_indexes_the_largest_timestamps(written: Written) -> None:
    for name, lines in dump(written.directory, TIME_INDEX).items():
        entries = [(int(entry["timestamp"]), int(entry["offset"])) for entry in map(fields, lines)]
        assert len(entries) >= 3
        batches = batches_of(written.directory / name.replace(TIME_INDEX, LOG))
        for timestamp, offset in entries:
            assert timestamp == max(time for _, last_offset, time in batches if last_offset <= offset)


def test_kafka_finds_our_aborted_transactions(written: Written) -> None:
    entries = [fields(line) for lines in dump(written.directory, TRANSACTION_INDEX).values() for line in lines]
    assert len(written.aborted) == 5
    assert [
        AbortedTransaction(*(int(e[key]) for key in ("producerId", "firstOffset", "lastOffset", "lastStableOffset")))
        for e in entries
    ] == written.aborted
    assert {entry["version"] for entry in entries} == {"0"}


def test_kafka_reads_our_snapshots_of_producers(written: Written) -> None:
    said = dump(written.directory, SNAPSHOT)
    assert len(said) > 1
    for name, lines in said.items():
        assert {int(fields(line)["producerId"]): fields(line)["lastSequence"] for line in lines} == last_sequences(
            written, before=int(name.split(".")[0])
        )
    newest = {int(fields(line)["producerId"]): fields(line) for line in lines}
    undecided = written.batches[-1]
    assert newest[8]["currentTxnFirstOffset"] == f"OptionalLong[{undecided['baseOffset']}]"
    assert newest[8]["lastOffset"] == undecided["lastOffset"]
    assert newest[154]["currentTxnFirstOffset"] == "OptionalLong.empty"
    assert (newest[154]["producerEpoch"], newest[154]["coordinatorEpoch"]) == ("2", "9")


def last_sequences(written: Written, before: int) -> dict[int, str]:
    """The last sequence of each producer in the batches before an offset."""
    return {
        int(batch["producerId"]): batch["lastSequence"]
        for batch in written.batches
        if int(batch["lastOffset"]) < before and batch["producerId"] != "-1" and batch["isControl"] == "false"
    }


# The other direction


@pytest.fixture
def of_kafka(tmp_path: Path) -> tuple[Path, Log]:
    """Kafka's segment without anything beside it, opened by us as a log that nobody closed."""
    directory = tmp_path / "words-0"
    directory.mkdir()
    shutil.copy(KAFKA_SEGMENT, directory)
    config = LogConfig(index_interval_bytes=2000)
    log, report = open_log(OperatingSystemFiles(), str(directory), config, clean=False, recovery_point=None)
    assert (report.truncation, report.damage) == (None, [])
    assert report.scanned_bytes == KAFKA_SEGMENT.stat().st_size
    return directory, log


def test_a_segment_of_kafka_s_is_read_back_as_a_log(of_kafka: tuple[Path, Log]) -> None:
    _, log = of_kafka
    offset, records = 0, []
    while (piece := log.read(offset, 10_000)) is not None:
        with piece:
            data, offset = piece.read(), piece.next_offset
        records += [record for position, _ in split(data) for record in decode_records(data, position)]
    assert [record.offset for record in records] == list(range(1033))
    assert sum(record.value is not None and record.value.startswith(b"tx") for record in records) == 30
    assert (log.start_offset, log.high_watermark, log.last_stable_offset) == (0, 1033, 1033)
    (aborted,) = log.aborted_transactions(0, 1033)
    assert (aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (1011, 1021, 1022)


def test_kafka_accepts_what_we_derive_from_its_own_segment(of_kafka: tuple[Path, Log]) -> None:
    directory, log = of_kafka
    log.checkpoint(NOW)
    for suffix in (INDEX, TIME_INDEX):
        for name, lines in dump(directory, suffix, "--index-sanity-check").items():
            assert lines == [f"{name} passed sanity check."]
        assert len(next(iter(dump(directory, suffix).values()))) >= 3, "there is something to be checked"
        assert list(dump(directory, suffix, "--verify-index-only").values()) == [[]], "no complaint"
    ((aborted,),) = dump(directory, TRANSACTION_INDEX).values()
    assert (fields(aborted)["firstOffset"], fields(aborted)["lastOffset"]) == ("1011", "1021")
    (producers,) = dump(directory, SNAPSHOT).values()
    assert len(producers) == len({header.producer_id for _, header in split(KAFKA_SEGMENT.read_bytes())})


def test_kafka_reads_segments_that_we_have_compacted(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1500, index_interval_bytes=300, delete_retention_ms=1000)
    world = World(opened=DataDirectory(OperatingSystemFiles(), str(tmp_path), config), now=NOW)
    for number in range(20):
        codec = list(Codec)[number % len(Codec)]
        world.write([(b"key %d" % (number % 3), b"v" * 50), (b"deleted", None), (b"a", b"1")], codec, 5, False)
        world.write([(b"key 1", b"x"), (b"%d" % number, b"y" * 30)], Codec.NONE, 7, True)
        world.mark(7, Marker.ABORT if number % 2 else Marker.COMMIT)
    world.write([(b"a", b"3")], Codec.NONE, -1, False)
    world.log.roll()
    world.checkpoint()
    for _ in range(2):
        assert isinstance(compact(world.log, NOW), PassResult)
    stored = stored_batches(world.log)
    world.directory.close(NOW)
    lines, complaints = run_tool(Path(world.log.directory), "[gx]", "--print-data-log")
    assert [
        line for line in complaints if not re.match(r"(Non-consecutive offsets in|  -?\d+ is followed by)", line)
    ] == []
    said = [fields(line) for line in lines if line.startswith("baseOffset")]
    headers = [read_header(data) for data in stored]
    assert [(int(one["baseOffset"]), int(one["lastOffset"]), int(one["count"])) for one in said] == [
        (one.base_offset, one.last_offset, one.record_count) for one in headers
    ]
    assert all(one["isvalid"] == "true" for one in said)
    assert [one["deleteHorizonMs"] for one in said] == [
        "OptionalLong.empty" if one.delete_horizon is None else f"OptionalLong[{one.delete_horizon}]" for one in headers
    ]
    assert {one.record_count == 0 for one in headers} == {True, False}
    assert any(one.delete_horizon for one in headers)
    records = [record for data in stored for record in decode_records(data)]
    printed = [fields(line) for line in lines if line.startswith("| offset")]
    assert [int(one["offset"]) for one in printed] == [record.offset for record in records]
    assert [int(one["CreateTime"]) for one in printed] == [record.timestamp for record in records]
