"""Restoring, and checking first: what is wrong with a backup is named, and never passes for a data directory."""

import pytest
from backups import DATA, DEST, RESTORED, a_source, back_up, batches_of, restored, verified, write_more
from brokers import LocalBroker

from tailrace.backup.copy import Copied, Pace
from tailrace.backup.manifest import BadManifest
from tailrace.backup.restore import BadBackup, NotEmpty, restore
from tailrace.backup.store import NoSuchBackup, NotABackup, Store
from tailrace.log.files.recorded_gaps import read_gaps
from tailrace.log.layout.errors import UnknownFormat
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import make_plan
from tailrace.log.tools.repair_steps import carry_out
from tailrace.records.batch import HEADER_SIZE
from tailrace.testing.recording_files import RecordingFiles


def backed_up() -> RecordingFiles:
    files, broker = a_source(batches=10)
    broker.directory.checkpoint(2000)
    write_more(broker.log(), 2)
    back_up(files)
    return files


def objects(files: RecordingFiles) -> list[str]:
    return sorted(files.files_in(f"{DEST}/objects"))


def test_a_bit_that_flips_in_any_object_is_found_and_the_files_are_named() -> None:
    files = backed_up()
    assert verified(files).healthy
    stored = [(f"{log.name}/{file.name}", file) for log in Store(files, DEST).latest().logs for file in log.files]
    for digest in objects(files):
        file = files.open(f"{DEST}/objects/{digest}")
        if not (size := file.size()):
            continue
        byte = file.read_at(size // 2, 1)
        file.write_at(size // 2, bytes([byte[0] ^ 4]))
        result = verified(files)
        assert not result.healthy
        assert [bad.path for bad in result.bad_objects] == [f"{DEST}/objects/{digest}"]
        assert set(result.bad_objects[0].files) == {name for name, one in stored if one.sha256 == digest}
        file.write_at(size // 2, byte)
    assert verified(files).healthy


def test_the_next_backup_copies_a_missing_or_short_object_again() -> None:
    files = backed_up()
    digest = max(objects(files), key=lambda name: files.files_in(f"{DEST}/objects")[name])
    files.open(f"{DEST}/objects/{digest}").truncate(10)
    assert "10 bytes" in verified(files).bad_objects[0].reason
    files.remove(f"{DEST}/objects/{digest}")
    assert verified(files).bad_objects[0].reason == "it is missing"
    back_up(files)
    assert all(verified(files, backup_id).healthy for backup_id in Store(files, DEST).ids())


def test_a_manifest_that_was_changed_is_not_believed() -> None:
    files = backed_up()
    [name] = files.files_in(f"{DEST}/backups")
    file = files.open(f"{DEST}/backups/{name}")
    file.write_at(100, b"x")
    with pytest.raises(BadManifest, match=name):
        Store(files, DEST).latest()


def test_what_a_repair_has_given_up_is_recorded_in_what_is_restored() -> None:
    files, broker = a_source(batches=10)
    broker.close()
    segment = f"{DATA}/orders-0/{min(name for name in files.files_in(f'{DATA}/orders-0') if name.endswith('.log'))}"
    files.open(segment).write_at(HEADER_SIZE, b"rot")
    carry_out(files, make_plan(files, locate(files, DATA)), DATA, "now")
    [gap] = read_gaps(files, f"{DATA}/orders-0")
    back_up(files)
    result = verified(files)
    assert result.healthy
    assert result.logs.gaps == [("orders-0", gap)]
    restored(files)
    with LocalBroker(RESTORED, files=files) as broker:
        assert broker.log().recorded_gaps == (gap,)


def test_a_damaged_backup_is_not_restored_unless_that_is_accepted() -> None:
    files = backed_up()
    log = next(log for log in Store(files, DEST).latest().logs if log.name == "orders-0")
    file = files.open(f"{DEST}/objects/{log.segments[0].log.sha256}")
    file.write_at(200, bytes([file.read_at(200, 1)[0] ^ 1]))
    with pytest.raises(BadBackup) as error:
        restored(files)
    assert error.value.damaged == [f"orders-0/{log.segments[0].log.name}"]
    with pytest.raises(UnknownFormat, match="unfinished restore"):
        LocalBroker(RESTORED, files=files)
    assert restored(files, accept_damage=True).damaged == error.value.damaged
    broker = LocalBroker(RESTORED, files=files)
    assert 0 < len(batches_of(broker.log())) < len(batches_of(LocalBroker(DATA, files=files).log()))


def test_a_directory_with_something_in_it_is_refused_and_left_alone() -> None:
    files = backed_up()
    before = files.files_in(DATA), files.directories_in(DATA)
    with pytest.raises(NotEmpty):
        restore(Store(files, DEST), Store(files, DEST).latest(), DATA, Copied())
    assert (files.files_in(DATA), files.directories_in(DATA)) == before
    files.make_directory(RESTORED)
    files.make_directory(f"{RESTORED}/lost+found")
    restored(files)
    LocalBroker(RESTORED, files=files)


def test_a_directory_of_a_format_that_this_release_does_not_know_is_not_restored() -> None:
    files = backed_up()
    manifest = Store(files, DEST).latest()
    manifest.data_format = 99
    with pytest.raises(UnknownFormat, match="format 99"):
        restore(Store(files, DEST), manifest, RESTORED, Copied())
    assert not files.exists(RESTORED)


def test_who_asks_for_a_backup_that_is_not_there_is_told() -> None:
    files = backed_up()
    with pytest.raises(NoSuchBackup):
        Store(files, DEST).manifest("../../etc/passwd")
    with pytest.raises(NotABackup):
        Store(files, DATA)


def test_bytes_are_moved_at_the_pace_that_is_asked_for() -> None:
    now, slept = [0.0], [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        slept[0] += seconds

    pace = Pace(1000, clock=lambda: now[0], sleep=sleep)
    for _ in range(20):
        pace.take(100)
    assert slept[0] == pytest.approx(1.9)
    now[0] += 10  # a pause is not made up for
    pace.take(1000)
    pace.take(1)
    assert slept[0] == pytest.approx(2.9)
