"""The real disk behind its seam: descriptors are bounded, pins hold, and nobody else gets in."""

import contextlib
import errno
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.disk.interface import (
    block_buffer,
    join,
    name_of,
    parent,
    read_whole,
    remove_if_there,
    replace_whole,
    write_whole,
)
from tailrace.log.disk.os_files import OperatingSystemFile, OperatingSystemFiles

LIMIT = 8
PAGE = 4096


def files_with_numbers(directory: Path, files: OperatingSystemFiles, count: int) -> list[OperatingSystemFile]:
    """Files that each hold their own number, four bytes wide, ten times."""
    opened = []
    for number in range(count):
        (directory / str(number)).write_bytes(number.to_bytes(4) * 10)
        opened.append(files.open(str(directory / str(number))))
    return opened


def descriptors_in(directory: Path) -> int:
    """How many descriptors of this process lead there."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(descriptor).startswith(str(directory))
    return count


# Descriptors


@pytest.mark.parametrize("order", ["once", "twice", "random"])
def test_hundreds_of_files_are_read_and_written_with_eight_descriptors(tmp_path: Path, order: str) -> None:
    files = OperatingSystemFiles(descriptor_limit=LIMIT)
    opened = files_with_numbers(tmp_path, files, 300)
    numbers = list(range(300)) * (1 if order == "once" else 2)
    if order == "random":
        random.Random(5).shuffle(numbers)
    for number in numbers:
        assert opened[number].read_at(4, 4) == number.to_bytes(4)
        opened[number].write_at(40, b"written")
        assert files.open_descriptors <= LIMIT
        assert opened[number].size() == 47
    assert 0 < descriptors_in(tmp_path) == files.open_descriptors <= LIMIT


def test_files_that_are_pinned_are_all_open_beyond_the_limit(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=LIMIT)
    opened = files_with_numbers(tmp_path, files, 3 * LIMIT)
    for file in opened:
        file.pin()
    assert files.open_descriptors == 3 * LIMIT
    for number, file in enumerate(opened):
        os.unlink(file.path)
        assert file.read_at(0, 4) == number.to_bytes(4)
        file.unpin()


def test_where_everything_is_pinned_another_file_can_still_be_used(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=LIMIT)
    *pinned, other = files_with_numbers(tmp_path, files, LIMIT + 1)
    for file in pinned:
        file.pin()
    for _ in range(3):
        assert other.read_at(0, 4) == LIMIT.to_bytes(4)
    for file in pinned:
        file.unpin()


def test_the_limit_holds_again_when_pins_are_gone(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=LIMIT)
    opened = files_with_numbers(tmp_path, files, 3 * LIMIT)
    for file in opened:
        file.pin()
    for file in opened:
        file.unpin()
    assert files.open_descriptors <= LIMIT


def test_a_process_without_free_descriptors_closes_those_that_are_not_pinned(tmp_path: Path) -> None:
    program = f"""
import resource
from tailrace.log.disk.os_files import OperatingSystemFiles
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = OperatingSystemFiles(1000)
for number in range(200):
    files.open({str(tmp_path)!r} + f"/{{number}}", create=True).write_at(0, b"x")
print("all")
pinned = [files.open({str(tmp_path)!r} + f"/{{number}}") for number in range(200)]
try:
    for file in pinned:
        file.pin()
except OSError as error:
    print(error.errno)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["all", str(errno.EMFILE)], result.stderr


def test_a_pinned_file_survives_its_removal_and_the_rush_of_others(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=LIMIT)
    kept, *others = files_with_numbers(tmp_path, files, 100)
    kept.pin()
    files.remove(kept.path)
    for other in others:
        other.read_at(0, 4)
    kept.close()
    assert kept.read_at(0, 100) == bytes(40)
    kept.unpin()
    with pytest.raises(FileNotFoundError):
        kept.read_at(0, 1)


def test_each_pin_needs_its_own_unpin(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=LIMIT)
    (file,) = files_with_numbers(tmp_path, files, 1)
    file.pin()
    file.pin()
    file.close()
    file.unpin()
    os.unlink(file.path)
    assert file.read_at(0, 4) == bytes(4)
    file.unpin()
    assert files.open_descriptors == 0
    assert descriptors_in(tmp_path) == 0


def test_a_closed_file_has_no_descriptor(tmp_path: Path) -> None:
    files = OperatingSystemFiles()
    for file in files_with_numbers(tmp_path, files, 5):
        file.read_at(0, 4)
        file.close()
        file.close()
    assert files.open_descriptors == descriptors_in(tmp_path) == 0


def test_a_closed_file_is_never_opened_again_since_another_may_have_its_name_by_then(tmp_path: Path) -> None:
    files, path = OperatingSystemFiles(), tmp_path / "file"
    path.write_bytes(b"old")
    pinned, unused = files.open(str(path)), files.open(str(path))
    pinned.pin()
    for file in (pinned, unused):
        file.close()
    path.unlink()
    path.write_bytes(b"new")
    assert pinned.read_at(0, 3) == b"old"
    with pytest.raises(FileNotFoundError, match="closed"):
        unused.read_at(0, 3)
    pinned.unpin()
    with pytest.raises(FileNotFoundError, match="closed"):
        pinned.read_at(0, 3)
    assert files.open_descriptors == 0


def test_threads_read_the_right_bytes_while_others_take_their_descriptors(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=LIMIT)
    opened = files_with_numbers(tmp_path, files, 60)
    wrong: list[object] = []

    def read(seed: int) -> None:
        numbers = random.Random(seed)
        for _ in range(1500):
            number = numbers.randrange(len(opened))
            try:
                data = opened[number].read_at(4 * numbers.randrange(10), 4)
            except OSError as error:
                wrong.append(error)
                return
            if data != number.to_bytes(4):
                wrong.append((number, data))
                return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    assert descriptors_in(tmp_path) == files.open_descriptors <= LIMIT


def test_a_missing_file_raises_on_first_use_and_takes_no_descriptor(tmp_path: Path) -> None:
    files = OperatingSystemFiles()
    file = files.open(str(tmp_path / "missing"))
    for use in (file.pin, file.size, file.sync, lambda: file.read_at(0, 1), lambda: file.write_at(0, b"x")):
        with pytest.raises(FileNotFoundError):
            use()
    assert not files.exists(file.path)
    assert files.open_descriptors == 0


# Bytes


def test_what_is_written_is_read_back_wherever_it_was_put(tmp_path: Path) -> None:
    file = OperatingSystemFiles().open(str(tmp_path / "file"), create=True)
    assert file.size() == 0
    file.write_at(0, b"hello")
    file.write_at(8, memoryview(bytearray(b"world")))
    assert file.size() == 13
    assert file.read_at(0, 100) == b"hello\0\0\0world"
    assert file.read_at(9, 3) == b"orl"
    assert file.read_at(13, 5) == b""
    file.truncate(7)
    file.sync()
    assert (tmp_path / "file").read_bytes() == b"hello\0\0"


def test_opening_a_file_to_create_it_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    assert OperatingSystemFiles().open(str(tmp_path / "file"), create=True).read_at(0, 10) == b"old"


def test_bytes_that_were_just_written_are_read_from_the_cache(tmp_path: Path) -> None:
    file = OperatingSystemFiles().open(str(tmp_path / "file"), create=True)
    data = random.Random(2).randbytes(100_000)
    file.write_at(0, data)
    cached = file.read_cached_at(1000, 70_000)
    if cached is None:
        pytest.skip("this system cannot say what is cached")
    assert bytes(cached) == data[1000:71_000]


def test_a_cached_read_never_gives_fewer_bytes_than_asked_for(tmp_path: Path) -> None:
    file = OperatingSystemFiles().open(str(tmp_path / "file"), create=True)
    file.write_at(0, b"short")
    assert file.read_cached_at(0, 6) is None
    assert file.read_cached_at(3, 3) is None


def test_a_write_that_stops_halfway_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    """The system writes up to the largest size that a file may have, and says how much that was."""
    program = f"""
import resource
from tailrace.log.disk.os_files import OperatingSystemFiles
file = OperatingSystemFiles().open({str(tmp_path / "file")!r}, create=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
try:
    file.write_at(10_000, bytes(100_000))
except OSError as error:
    print(error.errno, file.size())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["27", "50000"], "EFBIG, after a part was written"


def direct_file(files: OperatingSystemFiles, tmp_path: Path) -> OperatingSystemFile:
    file = files.open(str(tmp_path / "blocks"), create=True)
    file.write_at(0, bytes(2 * PAGE))
    file.pin()
    file.write_past_cache()
    return file


def test_blocks_that_are_written_past_the_cache_are_where_they_belong(tmp_path: Path) -> None:
    files = OperatingSystemFiles()
    file, block = direct_file(files, tmp_path), block_buffer(PAGE)
    block[:4] = b"here"
    file.write_synced_at(PAGE, block)
    assert files.open(file.path).read_at(PAGE, 4) == b"here"
    file.unpin()
    file.close()
    assert files.open_descriptors == 1, "that of the reader"


def test_what_cannot_be_written_past_the_cache_is_written_all_the_same(tmp_path: Path) -> None:
    files = OperatingSystemFiles()
    file = direct_file(files, tmp_path)
    file.write_synced_at(1, b"no block")  # which the system refuses, as some do whatever it is
    assert file.read_at(1, 8) == b"no block"
    file.write_synced_at(PAGE, b"nor this")
    assert file.read_at(PAGE, 8) == b"nor this"


def test_bytes_are_sent_to_a_descriptor_without_being_read(tmp_path: Path) -> None:
    file = OperatingSystemFiles().open(str(tmp_path / "file"), create=True)
    file.write_at(0, b"0123456789")
    file.pin()
    receiving, sending = os.pipe()
    try:
        assert file.send_to(sending, 3, 4) == 4
        assert os.read(receiving, 100) == b"3456"
    finally:
        file.unpin()
        os.close(receiving)
        os.close(sending)


def test_what_is_cached_is_sent_at_once_and_nothing_else_is(tmp_path: Path) -> None:
    file = OperatingSystemFiles().open(str(tmp_path / "file"), create=True)
    data = random.Random(3).randbytes(300_000)
    file.write_at(0, data)
    if file.read_cached_at(0, 1) is None:
        pytest.skip("this system cannot say what is cached")
    file.pin()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = file.send_cached_to(ours.fileno(), 1000, 50_000)
        assert sent is not None
        assert 0 < sent <= 50_000
        assert theirs.recv(sent, socket.MSG_WAITALL) == data[1000 : 1000 + sent]
        assert file.send_cached_to(ours.fileno(), 100_000, 200_001) is None, "the file ends before"
        file.sync()
        file.forget_cached()
        if file.read_cached_at(0, 1) is None:  # the system may remember it all the same
            assert file.send_cached_to(ours.fileno(), 1000, 50_000) is None
    file.unpin()


# Whole files


def test_a_whole_file_is_written_over_a_longer_one(tmp_path: Path) -> None:
    files, path = OperatingSystemFiles(), str(tmp_path / "file")
    assert read_whole(files, path) is None
    write_whole(files, path, b"a long text")
    write_whole(files, path, b"short", sync=False)
    assert read_whole(files, path) == b"short"
    assert files.open_descriptors == 0


def test_a_file_that_is_replaced_holds_the_new_bytes_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    files, path = OperatingSystemFiles(), str(tmp_path / "file")
    for data in (b"first", b"the second", b"3rd"):
        replace_whole(files, path, data)
        assert read_whole(files, path) == data
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["open", "rename"])
def test_a_replacement_that_fails_leaves_the_old_bytes(tmp_path: Path, call: str) -> None:
    files, path = OperatingSystemFiles(), tmp_path / "file"
    if call == "open":
        path.write_bytes(b"old")
        (tmp_path / "file.tmp").mkdir()  # where the new bytes would be written
    else:
        path.mkdir()  # a file cannot take its place
    with pytest.raises(OSError, match="directory"):
        replace_whole(files, str(path), b"new")
    assert path.is_dir() if call == "rename" else path.read_bytes() == b"old"


def test_a_reader_of_a_file_being_replaced_sees_the_old_bytes_or_the_new(tmp_path: Path) -> None:
    files, path = OperatingSystemFiles(), str(tmp_path / "file")
    contents = [letter * 5000 for letter in (b"a", b"b")]
    replace_whole(files, path, contents[0])
    done = threading.Event()

    def replace() -> None:
        for number in range(60):
            replace_whole(files, path, contents[number % 2])
        done.set()

    writer = threading.Thread(target=replace)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(read_whole(files, path))
    writer.join()
    assert seen <= set(contents)


def test_removing_a_file_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    files = OperatingSystemFiles()
    (tmp_path / "file").touch()
    for _ in range(2):
        remove_if_there(files, str(tmp_path / "file"))
    assert os.listdir(tmp_path) == []


# Names


def test_a_directory_lists_its_files_with_their_sizes_and_its_directories(tmp_path: Path) -> None:
    files = OperatingSystemFiles()
    files.make_directory(str(tmp_path / "b" / "c"))
    files.make_directory(str(tmp_path / "b"))
    files.make_directory(str(tmp_path / "a"))
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "none").touch()
    files.rename(str(tmp_path / "one"), str(tmp_path / "uno"))
    files.sync_directory(str(tmp_path))
    assert files.files_in(str(tmp_path)) == {"uno": 1, "none": 0}
    assert files.directories_in(str(tmp_path)) == ["a", "b"]


def test_a_directory_is_renamed_with_all_that_is_in_it_and_removed_when_it_is_empty(tmp_path: Path) -> None:
    files = OperatingSystemFiles()
    files.make_directory(str(tmp_path / "old"))
    (tmp_path / "old" / "file").write_bytes(b"1")
    files.rename(str(tmp_path / "old"), str(tmp_path / "new"))
    assert files.files_in(str(tmp_path / "new")) == {"file": 1}
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(str(tmp_path / "new"))
    files.remove(str(tmp_path / "new" / "file"))
    files.remove_directory(str(tmp_path / "new"))
    assert files.directories_in(str(tmp_path)) == []


def test_paths_are_put_together_and_taken_apart() -> None:
    path = join("some/where", "file")
    assert (parent(path), name_of(path)) == ("some/where", "file")
    assert parent("file") == "."


# Locks

LOCK_PROGRAM = """
import sys
from tailrace.log.disk.os_files import OperatingSystemFiles
print(OperatingSystemFiles().lock(sys.argv[1]) is not None, flush=True)
sys.stdin.read()
"""


def lock_elsewhere(path: Path) -> str:
    """What another process gets when it tries to lock `path`: True or False."""
    command = [sys.executable, "-c", LOCK_PROGRAM, str(path)]
    return subprocess.run(command, input="", capture_output=True, text=True, check=True).stdout.strip()


def test_a_lock_is_held_against_this_process_and_others_until_it_is_released(tmp_path: Path) -> None:
    files, path = OperatingSystemFiles(), tmp_path / ".lock"
    lock = files.lock(str(path))
    assert lock is not None
    assert files.lock(str(path)) is None
    assert lock_elsewhere(path) == "False"
    lock.release()
    assert lock_elsewhere(path) == "True"
    again = files.lock(str(path))
    assert again is not None
    again.release()


def test_a_lock_of_another_process_is_respected_and_dies_with_it(tmp_path: Path) -> None:
    files, path = OperatingSystemFiles(), tmp_path / ".lock"
    command = [sys.executable, "-c", LOCK_PROGRAM, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert files.lock(str(path)) is None
        holder.kill()
    lock = files.lock(str(path))
    assert lock is not None
    lock.release()


# Reading what one may not write


@pytest.fixture
def without_privileges() -> Iterator[None]:
    """For root nothing is read-only: be somebody else for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


@pytest.fixture
def read_only_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # pytest's own lets nobody else in
        directory = Path(name)
        (directory / "file").write_bytes(b"read me")
        (directory / "file").chmod(0o444)
        directory.chmod(0o555)
        yield directory
        directory.chmod(0o755)


@pytest.mark.usefixtures("without_privileges")
def test_a_directory_that_may_not_be_written_can_be_read(read_only_directory: Path) -> None:
    files, path = OperatingSystemFiles(), str(read_only_directory / "file")
    assert read_whole(files, path) == b"read me"
    assert files.files_in(str(read_only_directory)) == {"file": 7}
    file = files.open(path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, b"x")
    with pytest.raises(PermissionError):
        files.open(str(read_only_directory / "new"), create=True)
    file.close()


def test_bytes_that_were_read_ahead_are_cached_up_to_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 << 20))
    file = OperatingSystemFiles().open(str(path))
    file.sync()
    file.forget_cached()
    file.pin()
    if file.read_cached_at(2 << 20, 1) is not None:
        pytest.skip("this file system does not forget")
    assert not file.read_ahead(0, 1 << 20)
    file.read_at(0, 3 << 20)
    assert file.read_ahead(0, 1 << 20)
    assert file.read_ahead((3 << 20) - 10, 10), "there is nothing behind it"
    assert file.read_ahead(3 << 20, 10)
    file.unpin()
    file.close()
