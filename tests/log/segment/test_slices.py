"""Slices: bytes of a log that are read in parts, sent without copying, and held while they are needed."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from logs import DATA, ORDERS, SMALL, batch_of, memory_files

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.log import Log
from tailrace.log.segment.slices import FileSlice

NOW = 5000


class Setup:
    def __init__(self, path: Path) -> None:
        self.files = OperatingSystemFiles(descriptor_limit=4)
        self.directory = DataDirectory(self.files, str(path / "data"))
        self.log = self.directory.create(ORDERS)
        batches = [batch_of(3, size=size) for size in (100, 3000, 20)]
        for data in batches:
            self.log.append(data, NOW)
        self.log.flush()
        self.bytes = b"".join(batches)
        self.first = len(batches[0])

    def read(self, offset: int = 3) -> FileSlice:
        """The slice from the second batch on: it does not begin where its file does."""
        piece = self.log.read(offset, 1 << 20)
        assert piece is not None
        return piece


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    setup = Setup(tmp_path)
    yield setup
    setup.directory.close(NOW)


def test_a_slice_is_read_whole_or_in_parts(setup: Setup) -> None:
    expected = setup.bytes[setup.first :]
    with setup.read() as piece:
        assert piece.length == len(expected)
        assert piece.next_offset == 9
        assert piece.read() == expected
        assert piece.read(10) == expected[10:]
        assert piece.read(10, 5) == expected[10:15]
        assert piece.read(piece.length) == b""
        assert b"".join(piece.read(start, 700) for start in range(0, piece.length, 700)) == expected


def test_no_part_reaches_behind_the_slice(setup: Setup) -> None:
    piece = setup.log.read(0, setup.first)
    assert piece is not None
    with piece:
        assert piece.read(0, 1 << 20) == setup.bytes[: setup.first]
        assert piece.read(setup.first - 3, 10) == setup.bytes[setup.first - 3 : setup.first]


def test_what_is_cached_is_read_at_once(setup: Setup) -> None:
    with setup.read() as piece:
        cached = piece.read_cached(5, 100)
        if cached is None:
            pytest.skip("this system cannot say what is cached")
        assert bytes(cached) == setup.bytes[setup.first + 5 : setup.first + 105]
        assert bytes(piece.read_cached() or b"") == setup.bytes[setup.first :]
        assert bytes(piece.read_cached(piece.length - 3, 100) or b"") == setup.bytes[-3:]


def test_a_slice_is_sent_to_a_socket_part_by_part(setup: Setup) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, setup.read() as piece:
        sent = 0
        while sent < piece.length:
            sent += piece.send_to(ours.fileno(), sent, 1000)
        ours.close()
        received = b"".join(iter(lambda: theirs.recv(1 << 16), b""))
    assert received == setup.bytes[setup.first :]


def test_no_more_is_sent_than_the_slice_holds(setup: Setup) -> None:
    ours, theirs = socket.socketpair()
    piece = setup.log.read(0, setup.first)
    assert piece is not None
    with ours, theirs, piece:
        assert piece.send_to(ours.fileno(), 0, 1 << 20) == setup.first
        assert theirs.recv(1 << 16) == setup.bytes[: setup.first]


def test_a_socket_that_takes_no_more_stops_the_sending_and_not_the_slice(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"))
    log = directory.create(ORDERS)
    data = batch_of(1, size=900_000)
    log.append(data, NOW)
    log.flush()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    piece = log.read(0, 1 << 20)
    assert piece is not None
    received, sent = bytearray(), 0
    with ours, theirs, piece:
        while sent < piece.length:
            try:
                sent += piece.send_to(ours.fileno(), sent, piece.length - sent)
            except BlockingIOError:
                received += theirs.recv(1 << 20)
        ours.close()
        while more := theirs.recv(1 << 20):
            received += more
    assert received == data
    directory.close(NOW)


def test_a_slice_holds_its_descriptor_until_it_is_released_and_once_is_enough(setup: Setup) -> None:
    pieces = [setup.read(), setup.read()]
    path = Path(setup.log.active.log.path)
    path.unlink()
    setup.log.active.log.close()
    pieces[0].release()
    pieces[0].release()
    assert pieces[1].read() == setup.bytes[setup.first :], "releasing one twice takes nothing from the other"
    pieces[1].release()
    assert setup.files.open_descriptors == 0
    path.write_bytes(setup.bytes)


def test_a_context_releases_its_slice(setup: Setup) -> None:
    with setup.read() as piece:
        piece.read()
    with pytest.raises(AssertionError):
        piece.read()


@pytest.mark.parametrize("use", ["read", "read_cached", "send_to"])
def test_a_slice_that_was_released_cannot_be_used(setup: Setup, use: str) -> None:
    piece = setup.read()
    piece.release()
    arguments = {"read": (), "read_cached": (), "send_to": (1, 0, 1)}[use]
    with pytest.raises(AssertionError, match="released"):
        getattr(piece, use)(*arguments)
    assert (piece.length, piece.next_offset) == (len(setup.bytes) - setup.first, 9), "what it was can still be asked"


def test_a_file_that_has_become_shorter_is_not_read_as_if_it_were_whole() -> None:
    files = memory_files()
    log: Log = DataDirectory(files, DATA, SMALL).create(ORDERS)
    log.append(batch_of(3), NOW)
    log.flush()
    piece = log.read(0, 1000)
    assert piece is not None
    del files.disk.file(log.active.log.path)[-1:]
    with pytest.raises(EOFError):
        piece.read()
    assert piece.read(0, 10) == bytes(files.disk.file(log.active.log.path)[:10])
