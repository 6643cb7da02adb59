"""The log against a plain list: any order of appends, reads, rolls, deletions, truncations, stops and power cuts."""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from logs import DATA, ORDERS, memory_files

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import OffsetOutOfRange
from tailrace.log.log import Log
from tailrace.records.batch import split
from tailrace.records.compression import Codec
from tailrace.records.record import Record, decode_records, encode_batch

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200, segment_ms=500)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.files = memory_files()
        self.directory = DataDirectory(self.files, DATA, CONFIG)
        self.directory.create(ORDERS)
        self.records: list[Record] = []  # those that are left, in order
        self.next_offset = 0
        self.start_offset = 0
        self.flushed = 0  # everything below is safe
        self.recorded_start = 0  # the start offset that a power cut cannot take back
        self.now_ms = 1000

    @property
    def log(self) -> Log:
        return self.directory.logs[ORDERS]

    @rule(
        times=st.lists(st.integers(0, 300), min_size=1, max_size=4),
        size=st.sampled_from([0, 10, 200]),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD]),
        pause=st.sampled_from([0, 1, 600]),
    )
    def append(self, times: list[int], size: int, codec: Codec, pause: int) -> None:
        self.now_ms += pause
        records = [
            Record(self.next_offset + n, time, b"%d" % n, b"v" * size, (("h", None),)) for n, time in enumerate(times)
        ]
        appended = self.log.append(encode_batch(records, base_offset=self.next_offset, codec=codec), self.now_ms)
        assert appended.base_offset == self.next_offset
        self.records += records
        self.next_offset += len(records)
        assert appended.last_offset == self.next_offset - 1

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.next_offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def checkpoint(self) -> None:
        self.directory.checkpoint(self.now_ms)
        self.flushed = self.next_offset
        self.recorded_start = self.start_offset

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        offset = self.start_offset + int(share * (self.flushed - self.start_offset))
        self.log.delete_before(offset)
        self.start_offset = offset

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        wanted = self.start_offset + int(share * (self.next_offset - self.start_offset))
        self.directory.truncate(ORDERS, wanted)
        end = self.log.end_offset
        assert end <= wanted
        self.forget_from(end)
        self.recorded_start = self.start_offset
        self.flushed = self.next_offset

    def forget_from(self, end: int) -> None:
        self.records = [record for record in self.records if record.offset < end]
        self.next_offset = end

    @rule()
    def stop_and_start(self) -> None:
        self.directory.close(self.now_ms)
        self.directory = DataDirectory(self.files, DATA, CONFIG)
        assert self.directory.was_clean
        assert self.directory.reports[ORDERS].scanned_batches == 0
        self.flushed = self.next_offset
        self.recorded_start = self.start_offset

    @rule(seed=st.integers(0, 1000))
    def cut_the_power(self, seed: int) -> None:
        self.files = self.files.power_cut(seed, tears=False)
        self.directory = DataDirectory(self.files, DATA, CONFIG)
        if ORDERS not in self.directory.logs:
            assert self.flushed == 0
            self.directory.create(ORDERS)
        assert self.log.end_offset >= self.flushed
        assert not self.log.damage
        self.forget_from(self.log.end_offset)
        assert self.recorded_start <= self.log.start_offset <= self.start_offset
        self.start_offset = self.log.start_offset
        self.flushed = self.next_offset
        self.recorded_start = self.start_offset

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([1, 150, 500, 5000]))
    def read(self, share: float, max_bytes: int) -> None:
        offset = self.start_offset + int(share * (self.flushed - self.start_offset))
        piece = self.log.read(offset, max_bytes)
        if offset == self.flushed:
            assert piece is None
            return
        assert piece is not None
        with piece:
            data = piece.read()
        batches = list(split(data))
        assert len(batches) == 1 or len(data) <= max_bytes
        assert batches[0][1].base_offset <= offset <= batches[0][1].last_offset
        found = [record for position, _ in batches for record in decode_records(data, position)]
        assert piece.next_offset == found[-1].offset + 1
        known = {record.offset: record for record in self.records}
        assert [record for record in found if record.offset in known] == [
            known[offset] for offset in range(max(found[0].offset, min(known)), piece.next_offset)
        ]

    @rule(time=st.integers(0, 310))
    def find_a_time(self, time: int) -> None:
        visible = [record for record in self.records if self.start_offset <= record.offset < self.flushed]
        expected = next(((record.offset, record.timestamp) for record in visible if record.timestamp >= time), None)
        assert self.log.find_time(time) == expected

    @rule()
    def find_the_largest_time(self) -> None:
        visible = [record for record in self.records if self.start_offset <= record.offset < self.flushed]
        newest = max(visible, key=lambda record: record.timestamp, default=None)
        assert self.log.find_max_timestamp() == ((newest.offset, newest.timestamp) if newest else None)

    @rule()
    def read_outside(self) -> None:
        for offset in (self.start_offset - 1, self.flushed + 1):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100)

    @precondition(lambda self: hasattr(self, "records"))
    @invariant()
    def bounds_are_those_of_the_list(self) -> None:
        bounds = self.log.bounds
        assert (bounds.start, bounds.high_watermark, bounds.end) == (self.start_offset, self.flushed, self.next_offset)


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(
    max_examples=400,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
