"""The disk in memory: what was synced is always there after a power cut, what was not may be, in any combination."""

import pytest

from tailrace.log.disk.interface import read_whole, replace_whole, write_whole
from tailrace.testing.recording_files import Disk, RecordingFiles


@pytest.fixture
def files() -> RecordingFiles:
    return RecordingFiles(Disk(directories={"disk"}))


def states(files: RecordingFiles, after: int | None = None) -> set[tuple[tuple[str, bytes], ...]]:
    """Every state that a power cut may leave: the files by name, with their bytes."""
    calls = len(files.calls) if after is None else after
    return {contents(left) for left in files.power_cuts(calls, limit=10_000)}


def contents(files: RecordingFiles) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted((path, bytes(files.disk.file(path))) for path in files.disk.names))


def test_a_file_is_read_and_written_as_any(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    file.write_at(0, b"abc")
    file.write_at(5, b"f")
    assert file.read_at(0, 100) == b"abc\0\0f"
    assert file.read_at(1, 2) == b"bc"
    assert file.read_cached_at(0, 3) == b"abc"
    assert file.size() == 6
    file.truncate(2)
    assert (file.size(), file.read_at(0, 9)) == (2, b"ab")
    file.truncate(4)
    assert file.read_at(0, 9) == b"ab\0\0"
    assert files.files_in("disk") == {"file": 4}


def test_names_come_and_go_as_on_any_disk(files: RecordingFiles) -> None:
    files.open("disk/a", create=True).write_at(0, b"a")
    files.make_directory("disk/sub")
    files.open("disk/sub/deep", create=True)
    assert (files.files_in("disk"), files.directories_in("disk")) == ({"a": 1}, ["sub"])
    files.rename("disk/a", "disk/b")
    assert not files.exists("disk/a")
    assert read_whole(files, "disk/b") == b"a"
    files.remove("disk/b")
    assert read_whole(files, "disk/b") is None
    with pytest.raises(FileNotFoundError):
        files.remove("disk/b")
    with pytest.raises(FileNotFoundError):
        files.open("disk/b").read_at(0, 1)


def test_a_file_that_was_pinned_is_read_although_its_name_is_gone(files: RecordingFiles) -> None:
    files.open("disk/file", create=True).write_at(0, b"abc")
    file = files.open("disk/file")
    file.pin()
    files.remove("disk/file")
    assert file.read_at(0, 3) == b"abc"


def test_bytes_that_were_not_synced_are_kept_torn_or_lost(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    files.sync_directory("disk")
    file.write_at(0, b"abcd")
    assert states(files) == {(("disk/file", data),) for data in (b"", b"ab", b"abcd")}


def test_bytes_that_were_synced_are_kept(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    files.sync_directory("disk")
    file.write_at(0, b"abcd")
    file.sync()
    assert states(files) == {(("disk/file", b"abcd"),)}
    file.write_at(4, b"e")
    assert states(files) == {(("disk/file", b"abcd"),), (("disk/file", b"abcde"),)}


def test_a_write_may_be_lost_before_one_that_is_kept(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    files.sync_directory("disk")
    file.write_at(0, b"a")
    file.write_at(1, b"b")
    assert {dict(state)["disk/file"] for state in states(files)} == {b"", b"a", b"\0b", b"ab"}


def test_a_sync_covers_its_own_file_and_no_other(files: RecordingFiles) -> None:
    one, two = files.open("disk/one", create=True), files.open("disk/two", create=True)
    files.sync_directory("disk")
    one.write_at(0, b"1")
    two.write_at(0, b"2")
    two.sync()
    assert states(files) == {(("disk/one", data), ("disk/two", b"2")) for data in (b"", b"1")}


def test_a_truncation_that_was_not_synced_may_not_have_happened(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    files.sync_directory("disk")
    file.write_at(0, b"abcd")
    file.sync()
    file.truncate(1)
    assert {dict(state)["disk/file"] for state in states(files)} == {b"a", b"abcd"}
    file.sync()
    assert {dict(state)["disk/file"] for state in states(files)} == {b"a"}


def test_a_name_is_durable_once_its_directory_is_synced_and_not_before(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    file.write_at(0, b"a")
    file.sync()
    assert states(files) == {(), (("disk/file", b"a"),)}
    files.sync_directory("disk")
    assert states(files) == {(("disk/file", b"a"),)}


@pytest.mark.parametrize("synced", [False, True])
def test_a_rename_may_be_lost_until_the_directory_is_synced(files: RecordingFiles, synced: bool) -> None:
    write_whole(files, "disk/old", b"old")
    write_whole(files, "disk/new", b"new")
    files.sync_directory("disk")
    files.rename("disk/new", "disk/old")
    if synced:
        files.sync_directory("disk")
    before, after = (("disk/new", b"new"), ("disk/old", b"old")), (("disk/old", b"new"),)
    assert states(files) == ({after} if synced else {before, after})


def test_a_removal_may_be_lost_until_the_directory_is_synced(files: RecordingFiles) -> None:
    write_whole(files, "disk/file", b"a")
    files.sync_directory("disk")
    files.remove("disk/file")
    assert states(files) == {(), (("disk/file", b"a"),)}
    files.sync_directory("disk")
    assert states(files) == {()}


def test_a_directory_that_is_lost_takes_its_files_with_it(files: RecordingFiles) -> None:
    files.make_directory("disk/sub")
    write_whole(files, "disk/sub/file", b"a")
    files.sync_directory("disk/sub")
    assert states(files) == {(), (("disk/sub/file", b"a"),)}
    files.sync_directory("disk")
    assert states(files) == {(("disk/sub/file", b"a"),)}


def directories(files: RecordingFiles) -> set[tuple[str, ...]]:
    """The same for the directories in `disk`."""
    return {tuple(left.directories_in("disk")) for left in files.power_cuts(len(files.calls), limit=10_000)}


def make_directory_with_a_file(files: RecordingFiles, path: str, data: bytes) -> None:
    files.make_directory(path)
    write_whole(files, f"{path}/file", data)
    files.sync_directory(path)
    files.sync_directory("disk")


def test_a_directory_is_renamed_with_all_that_is_in_it(files: RecordingFiles) -> None:
    make_directory_with_a_file(files, "disk/old", b"a")
    unread = files.open("disk/old/file")
    files.rename("disk/old", "disk/new")
    assert files.directories_in("disk") == ["new"]
    assert files.files_in("disk/new") == {"file": 1}
    assert not files.exists("disk/old/file")
    for use in (
        lambda: unread.read_at(0, 1),
        lambda: files.open("disk/old/other", create=True),
        lambda: files.sync_directory("disk/old"),
        lambda: files.rename("disk/old", "disk/other"),
    ):
        with pytest.raises(FileNotFoundError):
            use()
    assert states(files) == {(("disk/old/file", b"a"),), (("disk/new/file", b"a"),)}
    files.sync_directory("disk")
    assert states(files) == {(("disk/new/file", b"a"),)}


def test_what_happens_in_a_directory_happens_under_whatever_name_is_left_of_it(files: RecordingFiles) -> None:
    make_directory_with_a_file(files, "disk/old", b"a")
    files.rename("disk/old", "disk/new")
    files.remove("disk/new/file")
    assert states(files) == {(), (("disk/old/file", b"a"),), (("disk/new/file", b"a"),)}
    assert directories(files) == {("old",), ("new",)}
    files.sync_directory("disk/new")
    assert states(files) == {()}, "the directory was synced, its name was not"
    assert directories(files) == {("old",), ("new",)}


def test_a_directory_that_is_made_under_an_old_name_is_another_one(files: RecordingFiles) -> None:
    make_directory_with_a_file(files, "disk/name", b"old")
    files.remove("disk/name/file")
    files.rename("disk/name", "disk/moved")
    files.make_directory("disk/name")
    write_whole(files, "disk/name/file", b"new")
    files.sync_directory("disk/name")
    files.sync_directory("disk")
    moved, name = ("disk/moved/file", b"old"), ("disk/name/file", b"new")
    assert states(files) == {(name,), (moved, name)}, "a sync of the new one says nothing of the old"


def test_a_removed_empty_directory_may_come_back_until_the_removal_is_synced(files: RecordingFiles) -> None:
    make_directory_with_a_file(files, "disk/sub", b"a")
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory("disk/sub")
    files.remove("disk/sub/file")
    files.remove_directory("disk/sub")
    assert files.directories_in("disk") == []
    assert directories(files) == {(), ("sub",)}
    assert states(files) == {(), (("disk/sub/file", b"a"),)}
    files.sync_directory("disk")
    assert directories(files) == {()}
    with pytest.raises(FileNotFoundError):
        files.remove_directory("disk/sub")


def test_a_closed_file_is_not_opened_again(files: RecordingFiles) -> None:
    write_whole(files, "disk/file", b"a")
    pinned, unused = files.open("disk/file"), files.open("disk/file")
    pinned.pin()
    for file in (pinned, unused):
        file.close()
    assert pinned.read_at(0, 1) == b"a"
    with pytest.raises(FileNotFoundError):
        unused.read_at(0, 1)
    pinned.unpin()
    with pytest.raises(FileNotFoundError):
        pinned.read_at(0, 1)


def test_a_file_that_is_replaced_is_the_old_or_the_new_one_at_every_moment(files: RecordingFiles) -> None:
    replace_whole(files, "disk/file", b"old")
    began = len(files.calls)
    replace_whole(files, "disk/file", b"newer")
    seen = set()
    for after in range(began, len(files.calls) + 1):
        seen |= {dict(state)["disk/file"] for state in states(files, after)}
    assert seen == {b"old", b"newer"}
    assert {dict(state)["disk/file"] for state in states(files)} == {b"newer"}


def test_a_power_cut_after_some_calls_knows_nothing_of_later_ones(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    files.sync_directory("disk")
    calls = len(files.calls)
    file.write_at(0, b"a")
    file.sync()
    assert states(files, calls) == {(("disk/file", b""),)}


def test_a_choice_among_too_many_states_includes_the_extremes(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    files.sync_directory("disk")
    for number in range(40):
        file.write_at(number, b"x")
    found = [dict(contents(left))["disk/file"] for left in files.power_cuts(len(files.calls), limit=200)]
    assert len(found) == len(set(found)) <= 200
    assert {b"", b"x" * 40, b"x" * 39, b"x" * 17 + b"\0" + b"x" * 22} <= set(found)
    again = [dict(contents(left))["disk/file"] for left in files.power_cuts(len(files.calls), limit=200)]
    assert again == found, "the choice is the same every time"
    other = [dict(contents(left))["disk/file"] for left in files.power_cuts(len(files.calls), limit=200, seed=1)]
    assert other != found


def test_one_power_cut_is_one_of_all_and_follows_from_its_seed(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    files.sync_directory("disk")
    file.write_at(0, b"abcd")
    file.write_at(4, b"efgh")
    seen = {contents(files.power_cut(seed)) for seed in range(100)}
    assert seen == states(files)
    assert contents(files.power_cut(7)) == contents(files.power_cut(7))
    whole = {contents(files.power_cut(seed, tears=False)) for seed in range(100)}
    assert {dict(state)["disk/file"] for state in whole} == {b"", b"abcd", b"\0\0\0\0efgh", b"abcdefgh"}


def test_what_a_power_cut_left_is_a_disk_to_go_on_with(files: RecordingFiles) -> None:
    write_whole(files, "disk/file", b"a")
    files.sync_directory("disk")
    left = next(files.power_cuts(len(files.calls), limit=10))
    left.open("disk/file").write_at(1, b"b")
    left.open("disk/more", create=True).write_at(0, b"c")
    assert contents(left) == (("disk/file", b"ab"), ("disk/more", b"c"))
    assert contents(files) == (("disk/file", b"a"),), "and another one than that it was made from"
    assert [call.kind for call in left.calls] == ["write", "create", "write"]


def test_calls_that_change_nothing_are_not_recorded(files: RecordingFiles) -> None:
    file = files.open("disk/file", create=True)
    calls = len(files.calls)
    file.truncate(0)
    file.read_at(0, 1)
    file.size()
    files.open("disk/file", create=True)
    files.make_directory("disk")
    files.files_in("disk")
    assert len(files.calls) == calls


def test_a_copy_of_a_disk_is_spoilt_alone(files: RecordingFiles) -> None:
    write_whole(files, "disk/file", b"abc")
    copy = files.disk.copy()
    copy.file("disk/file")[0] = 0
    del copy.names["disk/file"]
    assert read_whole(files, "disk/file") == b"abc"
    assert copy.fingerprint() != files.disk.fingerprint()
    assert files.disk.copy().fingerprint() == files.disk.fingerprint()


def test_nothing_in_memory_can_be_sent_to_a_socket(files: RecordingFiles) -> None:
    with pytest.raises(NotImplementedError):
        files.open("disk/file", create=True).send_to(1, 0, 1)
