"""`tailrace backup`: creates, lists, verifies, restores and prunes backups of a data directory.

No broker is asked: like `tailrace log`, this verb reads the directory itself.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.backup import view
from tailrace.cli.common import output
from tailrace.cli.common.options import AsJson, DryRun
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.backup.copy import Copied
    from tailrace.backup.create import Plan, Result
    from tailrace.backup.manifest import Manifest
    from tailrace.backup.restore import Restored
    from tailrace.backup.store import Store
    from tailrace.backup.verify import BackupVerification

app = typer.Typer(
    help="Back up a data directory while its broker runs; check backups, and restore them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Destination = Annotated[Path, typer.Argument(metavar="DEST", help="The directory that backups are kept in.")]
Which = Annotated[str | None, typer.Option("--backup", metavar="ID", help="Which one, by its id. [the newest]")]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="BYTES", help="At most so many bytes a second: 500KB, 20MB, 1GB.")
]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_NICENESS = 10


@app.command()
def create(
    data: Annotated[Path, typer.Argument(metavar="DATA_DIR", help="The broker's directory; it may be running.")],
    destination: Destination,
    rate: Rate = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Back up a data directory. Its broker may run, and is not disturbed.

    \b
    tailrace backup create /var/lib/tailrace /mnt/backups
    tailrace backup create /var/lib/tailrace /mnt/backups --rate 50MB
    tailrace backup create /var/lib/tailrace /mnt/backups --dry-run

    All that was acknowledged before it began is in it. Segments that an earlier backup in DEST has are not copied
    again. If it is killed, or the disk is full, earlier backups are as they were; run it again, and it goes on.
    Ends with 1 if something in DATA_DIR is damaged: it is in the backup as it is, and everything else, too.
    """
    pace = _rate(rate)
    with _in_words(f"; earlier backups in {destination} are as they were, and the same command goes on from here"):
        if dry_run:
            view.show_plan(_plan(data, destination), destination, as_json=as_json)
            return
        result = _create(data, destination, pace)
    if as_json:
        print(json.dumps(view.created(result), indent=2))
    else:
        view.show_created(result, destination)
    raise typer.Exit(ExitCode.FAILED if result.manifest.damage else ExitCode.DONE)


@app.command("list")
def list_(destination: Destination, as_json: AsJson = False) -> None:
    """The backups that there are, oldest first.

    \b
    tailrace backup list /mnt/backups
    """
    with _in_words():
        manifests = _readable(_store(destination))
    if as_json:
        print(json.dumps([view.summary(manifest) for manifest in manifests], indent=2))
        return
    table = output.table("BACKUP", "MADE", "LOGS", "SIZE", "COPIED", "DAMAGE", texts=("MADE",))
    for manifest in manifests:
        sizes = output.size(manifest.size), output.size(manifest.copied_bytes)
        made = output.time(manifest.began_ms)
        table.add_row(manifest.id, made, output.number(len(manifest.logs)), *sizes, str(len(manifest.damage) or "-"))
    output.draw(table, output.console())


@app.command()
def verify(
    destination: Destination,
    backup: Which = None,
    everything: Annotated[bool, typer.Option("--all", help="All backups, not only the newest.")] = False,
    rate: Rate = None,
    as_json: AsJson = False,
) -> None:
    """Read every byte of a backup, and say what is wrong with it.

    \b
    tailrace backup verify /mnt/backups
    tailrace backup verify /mnt/backups --all --json | jq '.[].healthy'

    Each file is compared with what was copied, and each log is checked as `tailrace log verify` does. Ends with 1 if
    anything is damaged.
    """
    if backup is not None and everything:
        raise Failure("--backup names one, and --all means all: only one of them goes", ExitCode.USAGE)
    pace = _rate(rate)
    with _in_words():
        store = _store(destination)
        chosen = _readable(store) if everything else [_choose(store, backup)]
        results = _verify(store, chosen, pace)
    if as_json:
        found = [result.as_json() for result in results]
        print(json.dumps(found if everything else found[0], indent=2))
    else:
        for result in results:
            view.show_verified(result)
    is_all_there = not everything or len(results) == len(store.ids())
    healthy = is_all_there and all(result.healthy for result in results)
    raise typer.Exit(ExitCode.DONE if healthy else ExitCode.FAILED)


@app.command()
def restore(
    destination: Destination,
    data: Annotated[Path, typer.Argument(metavar="NEW_DATA_DIR", help="A directory that is new, or empty.")],
    backup: Which = None,
    accept_damage: Annotated[
        bool, typer.Option("--accept-damage", help="Restore what there is, although the backup is damaged.")
    ] = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a data directory from a backup. Every byte is checked on its way.

    \b
    tailrace backup restore /mnt/backups /var/lib/tailrace-new
    tailrace serve --data /var/lib/tailrace-new

    A directory that is not empty is refused. If it is killed, the directory is unfinished, and no broker opens it: run
    it again.
    """
    pace = _rate(rate)
    with _in_words(f"; {data} is unfinished, and no broker opens it: the same command begins anew"):
        store = _store(destination)
        manifest = _choose(store, backup)
        if dry_run:
            view.show_restore_plan(manifest, data, begins_anew=_begins_anew(store, manifest, data), as_json=as_json)
            return
        restored = _restore(store, manifest, data, pace, accept_damage=accept_damage)
    if as_json:
        print(json.dumps({"backup": manifest.id, "data": str(data), **view.as_json_object(restored)}, indent=2))
    else:
        view.show_restored(restored, manifest, data)
    raise typer.Exit(ExitCode.FAILED if restored.damaged else ExitCode.DONE)


@app.command()
def prune(
    destination: Destination,
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=1, help="How many of the newest to keep.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete old backups, and the bytes that only they have.

    \b
    tailrace backup prune /mnt/backups --keep 7

    Where a manifest is damaged, nothing is deleted: which bytes that backup needs is not known.
    """
    from tailrace.backup.store import WritableStore
    from tailrace.log.disk.os_files import OperatingSystemFiles

    with _in_words():
        old = [manifest.id for manifest in _all_sound(_store(destination))[:-keep]]
        freed = 0
        if not dry_run:
            store = WritableStore(OperatingSystemFiles(), str(destination.absolute()))
            try:
                store.delete(old)
                freed = store.collect()
            finally:
                store.close()
    if as_json:
        print(json.dumps({"deleted": [] if dry_run else old, "would_delete": old, "freed_bytes": freed}, indent=2))
        return
    for backup_id in old:
        print(f"would delete {backup_id}" if dry_run else f"deleted {backup_id}")
    print("nothing was deleted" if dry_run or not old else f"{output.size(freed)} are free again")


# What the commands do


def _plan(data: Path, destination: Path) -> "Plan":
    """Nothing is written, so the place for backups need not be there."""
    from tailrace.backup.create import check_directory, make_plan, open_source
    from tailrace.backup.manifest import KnownSegments
    from tailrace.backup.store import NotABackup, Store, known_segments, object_sizes
    from tailrace.log.disk.os_files import OperatingSystemFiles

    files = OperatingSystemFiles()
    source = open_source(files, _existing(data))
    try:
        store = Store(files, str(destination.absolute()))
    except NotABackup:
        return make_plan(source, KnownSegments(), lambda _: False)
    check_directory(source, store)
    sizes = object_sizes(store)
    return make_plan(source, known_segments(store), lambda file: sizes.get(file.sha256) == file.size)


def _create(data: Path, destination: Path, pace: float | None) -> "Result":
    import time

    from tailrace.backup.create import Creation, check_directory, make_plan, open_source
    from tailrace.backup.store import WritableStore
    from tailrace.log.disk.os_files import OperatingSystemFiles

    os.nice(_NICENESS)  # a broker beside us comes first
    files = OperatingSystemFiles()
    source = open_source(files, _existing(data))
    _refuse_inside(data, destination)
    store = WritableStore(files, str(destination.absolute()))
    try:
        check_directory(source, store)
        total = make_plan(source, store.known_segments(), store.has).bytes_to_copy
        with _copying("Copying", total, pace) as copied:
            return Creation(source, store, copied, now_ms=lambda: time.time_ns() // 1_000_000).run()
    finally:
        store.close()


def _verify(store: "Store", chosen: "list[Manifest]", pace: float | None) -> "list[BackupVerification]":
    from tailrace.backup.verify import verify_backup

    checked: dict[str, str | None] = {}
    sizes = {file.sha256: file.size for manifest in chosen for file in manifest.files}
    total = sum(sizes.values()) + sum(segment.log.size for m in chosen for log in m.logs for segment in log.segments)
    with _copying("Verifying", total, pace) as copied:
        return [verify_backup(store, manifest, copied, checked) for manifest in chosen]


def _begins_anew(store: "Store", manifest: "Manifest", data: Path) -> bool:
    from tailrace.backup.restore import check_format, check_target

    check_format(manifest)
    return check_target(store.files, str(data.absolute()))


def _restore(
    store: "Store", manifest: "Manifest", data: Path, pace: float | None, *, accept_damage: bool
) -> "Restored":
    from tailrace.backup.restore import restore as restore_backup

    with _copying("Restoring", manifest.size, pace) as copied:
        return restore_backup(store, manifest, str(data.absolute()), copied, accept_damage=accept_damage)


def _store(destination: Path) -> "Store":
    from tailrace.backup.store import Store
    from tailrace.log.disk.os_files import OperatingSystemFiles

    return Store(OperatingSystemFiles(), str(destination.absolute()))


def _readable(store: "Store") -> "list[Manifest]":
    """All backups but those whose manifests are damaged, which are named. Raises BadManifest where none is left."""
    manifests, bad = store.manifests()
    if bad and not manifests:
        raise bad[0]
    for error in bad:
        output.warn(str(error))
    return manifests


def _all_sound(store: "Store") -> "list[Manifest]":
    manifests, bad = store.manifests()
    if bad:
        named = "\n  ".join(map(str, bad))
        raise Failure(
            f"nothing was deleted, as not every backup can be counted on:\n  {named}\n"
            "  `tailrace backup create` makes a sound one; then delete the manifest, and prune again",
            ExitCode.REFUSED,
        )
    return manifests


def _choose(store: "Store", backup_id: str | None) -> "Manifest":
    return store.latest() if backup_id is None else store.manifest(backup_id)


def _existing(data: Path) -> str:
    if not data.is_dir():
        raise Failure(f"{data} is not there", ExitCode.NOT_FOUND)
    return str(data.absolute())


def _refuse_inside(data: Path, destination: Path) -> None:
    if destination.resolve().is_relative_to(data.resolve()):
        raise Failure(f"{destination} lies inside of {data}: backups belong on another disk", ExitCode.REFUSED)


@contextmanager
def _copying(label: str, total: int, pace: float | None) -> "Iterator[Copied]":
    from tailrace.backup.copy import Copied, Pace

    with output.progress_bar(label, total) as progress:
        yield Copied(progress, Pace(pace))


@contextmanager
def _in_words(what_now: str = "") -> Iterator[None]:
    """Turns errors into failures with the next step: `what_now` after an error of a disk."""
    from tailrace.backup.manifest import BadManifest
    from tailrace.backup.restore import BadBackup
    from tailrace.log.layout.errors import LogError

    try:
        yield
    except BadBackup as error:
        for name in error.damaged:
            output.warn(f"{name} is not what was backed up")
        raise Failure(
            f"{error}: what was restored is unfinished, and no broker opens it\n"
            "  --backup ID takes an earlier one, and --accept-damage goes on with what there is"
        ) from None
    except BadManifest as error:
        raise Failure(str(error), ExitCode.FAILED) from None
    except LogError as error:
        raise Failure(str(error), _code_of(error)) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failure(f"{where}{error.strerror or error}{what_now}") from None


def _code_of(error: Exception) -> ExitCode:
    from tailrace.backup.create import AnotherDirectory, NotADataDirectory
    from tailrace.backup.restore import NotEmpty
    from tailrace.backup.store import NoSuchBackup, NotABackup, NotForBackups, StoreInUse
    from tailrace.log.layout.errors import UnknownFormat

    if isinstance(error, (NotADataDirectory, NotABackup, NoSuchBackup)):
        return ExitCode.NOT_FOUND
    refusals = AnotherDirectory, NotForBackups, StoreInUse, NotEmpty, UnknownFormat
    return ExitCode.REFUSED if isinstance(error, refusals) else ExitCode.FAILED


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)I?B?(?:/S)?", text.strip().upper())
    if match is None or not float(match[1]):
        raise Failure(f"--rate takes bytes a second, such as 500KB, 20MB or 1GB, not {text!r}", ExitCode.USAGE)
    return float(match[1]) * _UNITS[match[2]]
