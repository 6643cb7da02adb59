"""The journal's bytes: what comes back after a crash, and what does not; and when a half may be written to again."""

from dataclasses import dataclass
from errno import EIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import DATA, memory_files

from tailrace.log.files.journal_file import BLOCK_BYTES, BYTES_MIN, FILE_NAME, JournalEntry, read_journal
from tailrace.log.files.journal_file import decode_journal_write as decode_journal_write
from tailrace.log.files.journal_file import encode_journal_write as encode_journal_write
from tailrace.log.files.journal_file import size_of_journal_write as size_of_journal_write
from tailrace.log.flush.journal import Journal, make_journal, open_journal
from tailrace.log.layout.names import CUT
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

PATH = f"{DATA}/{FILE_NAME}"
HALF_BYTES = (BYTES_MIN - BLOCK_BYTES) // 2 // BLOCK_BYTES * BLOCK_BYTES
COMMITS_A_HALF = HALF_BYTES // BLOCK_BYTES

parts = st.builds(
    JournalEntry,
    st.text("abc-.é", min_size=1, max_size=40).map(str.encode),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 31),
    st.binary(max_size=9000),
)


@dataclass(eq=False)
class SomeLog:
    """As much of a log as the journal looks at."""

    synced: int = 0
    is_removed: bool = False


def a_part(number: int) -> JournalEntry:
    return JournalEntry(b"orders-0", bytes(16), 0, 100 * number, b"%d" % number)


def numbers(files: RecordingFiles) -> list[int]:
    return [int(bytes(part.data)) for part in read_journal(files, DATA)]


def write(journal: Journal, number: int) -> None:
    assert journal.make_room(BLOCK_BYTES)
    journal.write([a_part(number)])


@pytest.fixture
def files() -> RecordingFiles:
    return memory_files()


def encoded(session: int, sequence: int, written: list[JournalEntry]) -> bytearray:
    """Where another commit stood before."""
    names, data = sum(len(part.name) for part in written), sum(len(part.data) for part in written)
    commit = bytearray(b"\xff" * size_of_journal_write(len(written), names, data))
    assert encode_journal_write(memoryview(commit), session, sequence, written) == len(commit)
    return commit


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.lists(parts, min_size=1, max_size=5))
def test_a_commit_comes_back_as_it_was(session: int, sequence: int, written: list[JournalEntry]) -> None:
    commit = encoded(session, sequence, written)
    assert decode_journal_write(memoryview(commit), session) == (sequence, written, len(commit))


@given(st.lists(parts, min_size=1, max_size=3), st.data())
def test_a_commit_with_a_wrong_bit_is_none(written: list[JournalEntry], data: st.DataObject) -> None:
    commit = encoded(3, 7, written)
    end = len(bytes(commit).rstrip(b"\0"))
    at = data.draw(st.integers(0, end - 1))
    commit[at] ^= 1 << data.draw(st.integers(0, 7))
    assert decode_journal_write(memoryview(commit), 3) is None


@given(st.binary(max_size=300))
def test_bytes_that_are_no_commit_are_none(data: bytes) -> None:
    assert decode_journal_write(memoryview(data), 1) is None


def test_what_was_written_is_read_in_its_order(files: RecordingFiles) -> None:
    journal = make_journal(files, DATA, BYTES_MIN)
    for number in range(5):
        write(journal, number)
    assert numbers(files) == [0, 1, 2, 3, 4]


def test_what_was_written_is_on_disk(files: RecordingFiles) -> None:
    write(make_journal(files, DATA, BYTES_MIN), 1)
    assert numbers(files.power_cut(0)) == [1]


def test_the_next_session_has_nothing_of_the_last(files: RecordingFiles) -> None:
    write(make_journal(files, DATA, BYTES_MIN), 1)
    journal = open_journal(files, DATA)
    assert journal is not None
    assert numbers(files) == []
    write(journal, 2)
    assert numbers(files) == [2]


def test_a_session_that_begins_amid_another_is_read_from_its_start(files: RecordingFiles) -> None:
    journal = make_journal(files, DATA, BYTES_MIN)
    for number in range(3):
        write(journal, number)
    journal.begin_session()
    write(journal, 9)
    assert numbers(files) == [9]


def test_a_full_half_is_followed_by_the_other_and_both_are_read(files: RecordingFiles) -> None:
    journal = make_journal(files, DATA, BYTES_MIN)
    for number in range(COMMITS_A_HALF + 2):
        write(journal, number)
    assert numbers(files) == list(range(COMMITS_A_HALF + 2))


def test_what_a_half_held_before_is_not_read(files: RecordingFiles) -> None:
    journal = make_journal(files, DATA, BYTES_MIN)
    for number in range(2 * COMMITS_A_HALF + 3):
        write(journal, number)
    assert numbers(files) == list(range(COMMITS_A_HALF, 2 * COMMITS_A_HALF + 3))


def test_a_half_is_kept_until_the_logs_in_it_are_synced(files: RecordingFiles) -> None:
    journal, early, late = make_journal(files, DATA, BYTES_MIN), SomeLog(), SomeLog()
    journal.hold(early, 10)  # type: ignore[arg-type]
    for number in range(COMMITS_A_HALF):
        write(journal, number)
    assert journal.take_overdue() == []
    write(journal, 0)
    assert journal.take_overdue() == [early]
    assert journal.take_overdue() == [], "it was named"
    journal.hold(late, 10)  # type: ignore[arg-type]
    for number in range(COMMITS_A_HALF - 1):
        write(journal, number)
    assert not journal.make_room(BLOCK_BYTES)
    early.synced = 9
    assert not journal.make_room(BLOCK_BYTES)
    early.synced = 10
    assert journal.make_room(BLOCK_BYTES)
    assert journal.take_overdue() == [late]


def test_a_log_that_was_removed_holds_no_half(files: RecordingFiles) -> None:
    journal, log = make_journal(files, DATA, BYTES_MIN), SomeLog(is_removed=True)
    journal.hold(log, 10)  # type: ignore[arg-type]
    for number in range(3 * COMMITS_A_HALF):
        write(journal, number)


def test_more_than_a_half_has_no_room(files: RecordingFiles) -> None:
    journal = make_journal(files, DATA, BYTES_MIN)
    assert journal.make_room(HALF_BYTES)
    assert not journal.make_room(HALF_BYTES + BLOCK_BYTES)


def test_there_is_none_where_there_is_none(files: RecordingFiles) -> None:
    assert open_journal(files, DATA) is None
    assert read_journal(files, DATA) == []


@pytest.mark.parametrize("spoilt", [b"", b"tailrace", bytes(BYTES_MIN)])
def test_a_file_that_is_no_journal_is_not_used(files: RecordingFiles, spoilt: bytes) -> None:
    files.open(PATH, create=True).write_at(0, spoilt)
    assert read_journal(files, DATA) == []
    assert open_journal(files, DATA) is None
    assert not files.exists(PATH)
    assert files.exists(PATH + CUT) == any(spoilt), "what may have been one is kept"


def test_one_whose_first_block_cannot_be_written_is_removed(files: RecordingFiles) -> None:
    write(make_journal(files, DATA, BYTES_MIN), 1)
    faulty = FaultyFiles(files)
    faulty.fail("write_at", EIO, name=FILE_NAME)
    assert open_journal(faulty, DATA) is None
    assert read_journal(files.power_cut(0), DATA) == []


def test_a_crash_while_it_is_made_leaves_none_that_has_anything(files: RecordingFiles) -> None:
    make_journal(files, DATA, BYTES_MIN)
    for calls in range(len(files.calls) + 1):
        for disk in files.power_cuts(calls, limit=20):
            assert read_journal(disk, DATA) == []
            open_journal(disk, DATA)


def test_the_start_syncs_one_block(files: RecordingFiles) -> None:
    make_journal(files, DATA, BYTES_MIN)
    faulty = FaultyFiles(files)
    assert open_journal(faulty, DATA) is not None
    assert faulty.count["sync"] == 1
