"""Printers of `tailrace log dump`: records or batches, for people or as JSON lines.

A printer is given batches one by one and writes a line for each, or for each record in it. It knows record batches,
and nothing of where they come from. JSON is written in UTF-8 whatever the terminal has.
"""

import json
import shutil
import sys

from tailrace.cli.common import output
from tailrace.records.batch import NO_PRODUCER, BatchHeader
from tailrace.records.compression import Codec
from tailrace.records.control import decode_marker
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import Record, decode_records
from tailrace.util.json_messages import put_bytes, text_or_base64

_KEY_WIDTH = 20
_WIDTH_WHERE_NONE_IS_KNOWN = 160
_WRITE_CHARACTERS = 1 << 16


class Printer:
    """Prints in large pieces: a caller that writes to stderr in between calls `flush` first, to keep the order."""

    def __init__(self, first: int, last: int | None) -> None:
        self._where: dict[str, object] = {}
        self._first = self._from = first
        self._last = last
        self._lines: list[str] = []
        self._characters = 0
        self._to_terminal = sys.stdout.isatty()

    def begin(self, name: str, where: dict[str, object], *, start_offset: int, many: bool) -> None:
        """Begins the output for a partition whose log begins at `start_offset`. `where` goes into each line of JSON."""
        self._where = where
        self._from = max(self._first, start_offset)

    def is_behind(self, header: BatchHeader) -> bool:
        """Whether this batch, and so all that follow, has only offsets behind the last one wanted."""
        return self._last is not None and header.base_offset > self._last

    def batch(self, position: int, header: BatchHeader, window: memoryview, at: int, file: str) -> str | None:
        """Prints the batch that begins at `at` of `window`, and stands at `position` of `file`. Says what it cannot
        print, and why.
        """
        raise NotImplementedError

    def damage(self, damage: dict[str, str | int]) -> None:
        """Here the log has no batches that could be printed."""

    def _wants(self, first: int, last: int) -> bool:
        return last >= self._from and (self._last is None or first <= self._last)

    def _write(self, line: str) -> None:
        self._lines.append(line)
        self._characters += len(line)
        if self._to_terminal or self._characters >= _WRITE_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            sys.stdout.buffer.write(("\n".join(self._lines) + "\n").encode("utf-8", "backslashreplace"))
            sys.stdout.buffer.flush()
            self._lines.clear()
            self._characters = 0


class RecordPrinter(Printer):
    def batch(self, position: int, header: BatchHeader, window: memoryview, at: int, file: str) -> str | None:
        if not self._wants(header.base_offset, header.last_offset):
            return None
        try:
            records = decode_records(window, at)
            for record in records:
                if self._wants(record.offset, record.offset):
                    self._write(self._line(record, header))
        except CorruptBatch as error:
            return (
                f"{file}: the batch at byte {position} was written with records that cannot be read: offsets "
                f"{header.base_offset} to {header.last_offset} ({error})"
            )
        return None

    def _line(self, record: Record, header: BatchHeader) -> str:
        raise NotImplementedError


class JsonRecordPrinter(RecordPrinter):
    def _line(self, record: Record, header: BatchHeader) -> str:
        shown: dict[str, object] = {**self._where, "offset": record.offset, "timestamp": record.timestamp}
        put_bytes(shown, "key", record.key)
        put_bytes(shown, "value", record.value)
        shown["headers"] = [
            [text_or_base64(name.encode("utf-8", "surrogateescape")), text_or_base64(value)]
            for name, value in record.headers
        ]
        if header.is_control:
            shown["control"] = _control(record)
            shown["producer_id"] = header.producer_id
            shown["producer_epoch"] = header.producer_epoch
        return json.dumps(shown, ensure_ascii=False)


class PlainRecordPrinter(RecordPrinter):
    def __init__(self, first: int, last: int | None) -> None:
        super().__init__(first, last)
        self._width = shutil.get_terminal_size((_WIDTH_WHERE_NONE_IS_KNOWN, 0)).columns
        self._begun = False

    def begin(self, name: str, where: dict[str, object], *, start_offset: int, many: bool) -> None:
        super().begin(name, where, start_offset=start_offset, many=many)
        if many:
            self._write(f"\n{name}" if self._begun else name)
        self._begun = True

    def _line(self, record: Record, header: BatchHeader) -> str:
        start = f"{record.offset:>10}  {output.time(record.timestamp):<29}  "
        if header.is_control:
            return f"{start}{_control(record)} of producer {header.producer_id}, epoch {header.producer_epoch}"
        start += f"{output.short(record.key, _KEY_WIDTH):<{_KEY_WIDTH}}  "
        headers = "".join(f"  [{name}: {output.short(value, _KEY_WIDTH)}]" for name, value in record.headers)
        return start + output.short(record.value, max(20, self._width - len(start) - len(headers))) + headers


class JsonBatchPrinter(Printer):
    def batch(self, position: int, header: BatchHeader, window: memoryview, at: int, file: str) -> str | None:
        if self._wants(header.base_offset, header.last_offset):
            self._write(json.dumps({**self._where, **_batch(position, header, file)}, ensure_ascii=False))
        return None

    def damage(self, damage: dict[str, str | int]) -> None:
        shown = {
            "file": damage["file"],
            "position": damage["position"],
            "size": damage["length"],
            "base_offset": damage["first_offset"],
            "last_offset": damage["last_offset"],
            "valid": False,
            "reason": damage["reason"],
        }
        self._write(json.dumps({**self._where, **shown}, ensure_ascii=False))


class PlainBatchPrinter(Printer):
    def begin(self, name: str, where: dict[str, object], *, start_offset: int, many: bool) -> None:
        super().begin(name, where, start_offset=start_offset, many=many)
        self._file: str | None = None

    def batch(self, position: int, header: BatchHeader, window: memoryview, at: int, file: str) -> str | None:
        if self._wants(header.base_offset, header.last_offset):
            self._name(file)
            self._write(
                _stretch(position, header.size, header.base_offset, header.last_offset)
                + f"{header.record_count:>6} records  {_codec(header):<6}  {output.time(header.max_timestamp)}  "
                + f"epoch {header.leader_epoch}{_marks(header)}"
            )
        return None

    def damage(self, damage: dict[str, str | int]) -> None:
        self._name(str(damage["file"]))
        stretch = _stretch(*(damage[name] for name in ("position", "length", "first_offset", "last_offset")))
        self._write(f"{stretch}DAMAGED: {damage['reason']}")

    def _name(self, file: str) -> None:
        if file != self._file:
            self._write(file)
            self._file = file


def printer(*, as_json: bool, batches: bool, first: int, last: int | None) -> Printer:
    kinds = {
        (False, False): PlainRecordPrinter,
        (False, True): PlainBatchPrinter,
        (True, False): JsonRecordPrinter,
        (True, True): JsonBatchPrinter,
    }
    return kinds[as_json, batches](first, last)


def _control(record: Record) -> str:
    marker, _ = decode_marker(record)
    return marker.name.lower() if marker is not None else "other"


def _stretch(position: object, size: object, first: object, last: object) -> str:
    return f"  at {position:<11} {size:>9} bytes  offsets {f'{first}–{last}':<21} "


def _codec(header: BatchHeader) -> str:
    try:
        return Codec(header.codec).name.lower()
    except ValueError:
        return str(header.codec)


def _batch(position: int, header: BatchHeader, file: str) -> dict[str, object]:
    return {
        "file": file,
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "codec": _codec(header),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "log_append" if header.has_log_append_time else "create",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "leader_epoch": header.leader_epoch,
        "crc": header.crc,
        "valid": True,
    }


def _marks(header: BatchHeader) -> str:
    marks = ""
    if header.producer_id != NO_PRODUCER:
        marks += f"  producer {header.producer_id}"
    if header.is_control:
        marks += "  control"
    elif header.is_transactional:
        marks += "  transactional"
    return marks
