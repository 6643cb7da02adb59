"""Real files that keep back what was not synced: this process sees it, a later one does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.log.disk.interface import read_whole, replace_whole, write_whole
from tailrace.testing.losing_files import LosingFiles


def test_bytes_that_were_not_synced_are_seen_here_and_are_not_on_disk(tmp_path: Path) -> None:
    files = LosingFiles()
    file = files.open(str(tmp_path / "file"), create=True)
    file.write_at(0, b"abc")
    file.write_at(3, b"def")
    assert (file.read_at(0, 10), file.size(), file.read_cached_at(2, 2)) == (b"abcdef", 6, b"cd")
    assert read_whole(files, str(tmp_path / "file")) == b"abcdef", "also by who opens it anew"
    assert files.files_in(str(tmp_path)) == {"file": 6}
    assert (tmp_path / "file").read_bytes() == b""
    file.sync()
    assert (tmp_path / "file").read_bytes() == b"abcdef"
    file.write_at(6, b"ghi")
    assert (tmp_path / "file").read_bytes() == b"abcdef"


def test_bytes_kept_back_lie_over_those_on_disk(tmp_path: Path) -> None:
    file = LosingFiles().open(str(tmp_path / "file"), create=True)
    file.write_at(0, b"0123456789")
    file.sync()
    file.write_at(2, b"ab")
    file.write_at(3, b"XY")
    file.write_at(12, b"!")
    assert file.read_at(0, 100) == b"01aXY56789\0\0!"
    assert file.read_at(3, 2) == b"XY"
    assert file.read_at(11, 9) == b"\0!"
    assert file.read_at(4, 1) == b"Y"
    file.sync()
    assert (tmp_path / "file").read_bytes() == b"01aXY56789\0\0!"


def test_a_truncation_cuts_what_is_on_disk_and_what_is_kept_back(tmp_path: Path) -> None:
    file = LosingFiles().open(str(tmp_path / "file"), create=True)
    file.write_at(0, b"0123")
    file.sync()
    file.write_at(4, b"4567")
    file.truncate(6)
    assert file.read_at(0, 10) == b"012345"
    file.truncate(2)
    assert (file.read_at(0, 10), file.size()) == (b"01", 2)
    file.sync()
    assert (tmp_path / "file").read_bytes() == b"01"


def test_names_are_those_of_the_operating_system_and_bytes_follow_them(tmp_path: Path) -> None:
    files = LosingFiles()
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    files.open(old, create=True).write_at(0, b"kept back")
    files.rename(old, new)
    assert read_whole(files, new) == b"kept back"
    assert (tmp_path / "new").read_bytes() == b""
    files.remove(new)
    files.open(new, create=True)
    assert read_whole(files, new) == b"", "another file, which was never written"
    replace_whole(files, new, b"whole")
    assert (tmp_path / "new").read_bytes() == b"whole"
    assert not (tmp_path / "new.tmp").exists()


def test_bytes_kept_back_follow_their_directory(tmp_path: Path) -> None:
    files = LosingFiles()
    files.make_directory(str(tmp_path / "old"))
    files.open(str(tmp_path / "old" / "file"), create=True).write_at(0, b"kept back")
    files.rename(str(tmp_path / "old"), str(tmp_path / "new"))
    assert read_whole(files, str(tmp_path / "new" / "file")) == b"kept back"
    assert (tmp_path / "new" / "file").read_bytes() == b""
    files.remove(str(tmp_path / "new" / "file"))
    files.remove_directory(str(tmp_path / "new"))
    assert files.directories_in(str(tmp_path)) == []


def test_each_file_is_synced_by_itself(tmp_path: Path) -> None:
    files = LosingFiles()
    one, two = (files.open(str(tmp_path / name), create=True) for name in ("one", "two"))
    one.write_at(0, b"1")
    two.write_at(0, b"2")
    two.sync()
    assert [(tmp_path / name).read_bytes() for name in ("one", "two")] == [b"", b"2"]


def test_a_disk_that_lies_does_nothing_when_files_of_that_name_are_synced(tmp_path: Path) -> None:
    files = LosingFiles(lies_about=".log")
    write_whole(files, str(tmp_path / "0.log"), b"lost")
    write_whole(files, str(tmp_path / "0.index"), b"kept")
    assert read_whole(files, str(tmp_path / "0.log")) == b"lost", "nobody notices while the process lives"
    assert (tmp_path / "0.log").read_bytes() == b""
    assert (tmp_path / "0.index").read_bytes() == b"kept"


def test_a_process_that_is_killed_leaves_what_it_had_synced(tmp_path: Path) -> None:
    program = f"""
import os, signal
from tailrace.testing.losing_files import LosingFiles
file = LosingFiles().open({str(tmp_path / "file")!r}, create=True)
file.write_at(0, b"synced")
file.sync()
file.write_at(6, b" and not")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert (tmp_path / "file").read_bytes() == b"synced"


def test_bytes_kept_back_cannot_be_sent_to_a_socket(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        LosingFiles().open(str(tmp_path / "file"), create=True).send_to(1, 0, 1)
