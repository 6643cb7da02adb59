"""Files that fail when told to: the right call, as often as said, with the rest of the disk as it was."""

from collections.abc import Callable
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from tailrace.log.disk.interface import Files, read_whole
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import Disk, RecordingFiles


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(RecordingFiles(Disk(directories={"disk"})))


def outcome(call: Callable[[], object]) -> int | None:
    """The number of the error that the call raises, if any."""
    try:
        call()
    except OSError as error:
        return error.errno
    return None


CALLS: dict[str, Callable[[Files], object]] = {
    "open": lambda files: files.open("disk/new", create=True),
    "write_at": lambda files: files.open("disk/file").write_at(0, b"new"),
    "read_at": lambda files: files.open("disk/file").read_at(0, 3),
    "truncate": lambda files: files.open("disk/file").truncate(1),
    "sync": lambda files: files.open("disk/file").sync(),
    "rename": lambda files: files.rename("disk/file", "disk/other"),
    "remove": lambda files: files.remove("disk/file"),
    "sync_directory": lambda files: files.sync_directory("disk"),
    "make_directory": lambda files: files.make_directory("disk/more"),
}


@pytest.mark.parametrize("kind", CALLS)
def test_each_kind_of_call_is_counted_fails_when_told_to_and_works_again(files: FaultyFiles, kind: str) -> None:
    files.open("disk/file", create=True).write_at(0, b"abc")
    files.count.clear()
    files.fail(kind, EIO)
    with pytest.raises(OSError, match="Input/output error") as error:
        CALLS[kind](files)
    assert error.value.errno == EIO
    assert files.count == {kind: 1}, "a call that fails was a call"
    assert outcome(lambda: CALLS[kind](files)) is None
    assert files.count == {kind: 2}


def test_the_call_that_fails_is_the_one_that_was_named(files: FaultyFiles) -> None:
    file = files.open("disk/file", create=True)
    files.fail("sync", EIO, after=2)
    assert [outcome(file.sync) for _ in range(5)] == [None, None, EIO, None, None]


def test_a_disk_that_fails_for_ever_does_so_until_it_is_healed(files: FaultyFiles) -> None:
    file = files.open("disk/file", create=True)
    files.fail("write_at", ENOSPC, after=1, forever=True)
    assert [outcome(lambda: file.write_at(0, b"x")) for _ in range(4)] == [None, ENOSPC, ENOSPC, ENOSPC]
    files.heal()
    assert outcome(lambda: file.write_at(0, b"x")) is None
    assert files.count["write_at"] == 5


def test_only_files_whose_name_matches_fail_and_only_they_are_counted_down(files: FaultyFiles) -> None:
    log, index = files.open("disk/0.log", create=True), files.open("disk/0.index", create=True)
    files.fail("sync", EIO, name=".log", after=1)
    assert [outcome(file.sync) for file in (index, log, index, log, index)] == [None, None, None, EIO, None]


def test_the_name_is_that_of_the_file_not_of_its_directory() -> None:
    files = FaultyFiles(RecordingFiles(Disk(directories={"disk.log"})))
    files.fail("write_at", EIO, name=".log")
    assert outcome(lambda: files.open("disk.log/file", create=True).write_at(0, b"x")) is None


def test_a_rename_goes_by_the_name_it_would_have_given(files: FaultyFiles) -> None:
    files.open("disk/a.tmp", create=True)
    files.fail("rename", EIO, name="checkpoint")
    assert outcome(lambda: files.rename("disk/a.tmp", "disk/b.tmp")) is None
    assert outcome(lambda: files.rename("disk/b.tmp", "disk/checkpoint")) == EIO
    assert files.exists("disk/b.tmp")


def test_a_write_that_fails_leaves_half_of_its_bytes(files: FaultyFiles) -> None:
    file = files.open("disk/file", create=True)
    file.write_at(0, b"0123456789")
    files.fail("write_at", ENOSPC)
    assert outcome(lambda: file.write_at(5, b"abcdef")) == ENOSPC
    assert read_whole(files, "disk/file") == b"01234abc89"


def test_several_faults_strike_each_by_itself(files: FaultyFiles) -> None:
    file = files.open("disk/file", create=True)
    files.fail("sync", EIO)
    files.fail("write_at", ENOSPC)
    assert outcome(lambda: file.write_at(0, b"x")) == ENOSPC
    assert outcome(file.sync) == EIO
    assert outcome(file.sync) is None


def test_opening_a_file_that_is_there_is_no_call(files: FaultyFiles) -> None:
    files.open("disk/file", create=True)
    files.fail("open", EIO, forever=True)
    assert outcome(lambda: files.open("disk/file")) is None
    assert outcome(lambda: files.open("disk/file", create=True)) == EIO
    assert files.count["open"] == 2


def test_removing_a_directory_can_fail(files: FaultyFiles) -> None:
    files.make_directory("disk/sub")
    files.fail("remove_directory", EIO)
    assert outcome(lambda: files.remove_directory("disk/sub")) == EIO
    assert files.exists("disk/sub")
    assert outcome(lambda: files.remove_directory("disk/sub")) is None
    assert not files.exists("disk/sub")


def test_real_files_work_through_it_as_they_are(tmp_path: Path) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    path = str(tmp_path / "file")
    file = files.open(path, create=True)
    file.write_at(0, b"abcdef")
    file.sync()
    file.truncate(4)
    file.pin()
    assert (file.path, file.size(), file.read_at(1, 9)) == (path, 4, b"bcd")
    files.remove(path)
    assert file.read_at(0, 4) == b"abcd", "pinned"
    file.unpin()
    file.close()
    assert files.files_in(str(tmp_path)) == {}
    lock = files.lock(str(tmp_path / "lock"))
    assert lock is not None
    assert files.lock(str(tmp_path / "lock")) is None
    lock.release()
