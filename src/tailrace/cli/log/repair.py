"""`tailrace log repair`: shows the plan of a repair, and with --apply carries it out.

The plan, and how it is carried out, is in `tailrace.log.tools.repair`. The directory is locked meanwhile: repair is
refused while a broker has it open, and a broker that starts meanwhile is refused.
"""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import output
from tailrace.cli.common.options import AsJson
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from rich.console import Console

    from tailrace.log.disk.interface import Files
    from tailrace.log.layout.names import TopicPartition
    from tailrace.log.tools.locate import Places
    from tailrace.log.tools.lost_partitions import LostPartition
    from tailrace.log.tools.repair import PartitionPlan, RepairPlan, Step
    from tailrace.log.tools.verify import Verification

_STATE_OF = {
    "__tailrace_metadata": "configs that were set there are forgotten, and topics that were never written to; other "
    "topics come back with the next start, as their logs know whose they are",
    "__consumer_offsets": "commits that stand there are forgotten; a group then goes on from an earlier one, and gets "
    "records again",
}


def repair(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory, or one partition of it.")],
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, it is only shown.")] = False,
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="This topic alone.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="NUMBER", min=0, help="This partition of it alone.")
    ] = None,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Also where the broker's own state would be forgotten, with --accept-loss."),
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Give up partitions that are lost: make them anew, without records.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what can be done about damage, and with --apply do it. The broker must be stopped.

    \b
    tailrace log repair data                                show what is damaged
    tailrace log repair data --apply                        repair it
    tailrace log repair data --topic orders --partition 0   one partition alone
    tailrace log repair data --apply --accept-loss          give up what is lost

    Bad bytes are copied aside and taken out; what is sound stays as it is, to the byte. Offsets that are lost by that
    are recorded, and readers pass over them. A partition whose directory or segments are gone goes on behind all
    offsets that it had. Ends with 0 where there is nothing to do or all was done, and with 1 where
    a plan was shown, or something could not be done.
    """
    from tailrace.log.disk.os_files import OperatingSystemFiles
    from tailrace.log.tools.repair import complete_swaps, make_plan
    from tailrace.log.tools.repair_steps import NotRepaired, carry_out
    from tailrace.log.tools.verify import bytes_to_read, verify

    files = OperatingSystemFiles()
    data = _data_directory(files, directory)
    with _held(files, data):
        places = _places(files, directory, topic, partition)
        completed = complete_swaps(files, places) if apply else []
        with output.progress_bar("Reading", bytes_to_read(files, places)) as progress:
            plan = make_plan(files, places, progress)
        if not as_json:
            _show_completed(completed, output.console())
            _show_plan(plan, output.console())
        if not apply or plan.is_empty:
            internal |= bool(plan.internal_losses)
            accept_loss |= bool(plan.lost or plan.internal_losses)
            command = _command(directory, topic, partition, internal=internal, accept_loss=accept_loss)
            _end_with_plan(plan, command, as_json=as_json)
        _require_leave(plan, internal=internal, accept_loss=accept_loss)
        try:
            carry_out(files, plan, data, datetime.now(UTC).isoformat(timespec="seconds"))
        except NotRepaired as error:
            raise Failure(str(error)) from None
        repaired = {one.place.name for one in plan.partitions if one.to_do} | {str(one.partition) for one in plan.lost}
        places = _places(files, directory, topic, partition)
        found = tuple(place for place in places.found if place.name in repaired)
        result = verify(files, replace(places, found=found, state=None))
    if as_json:
        print(json.dumps({**plan.as_json(), "applied": True, "after": result.as_json()}, indent=2))
    else:
        _show_result(result, output.console())
    raise typer.Exit(ExitCode.DONE if result.healthy else ExitCode.FAILED)


def _data_directory(files: "Files", path: Path) -> str:
    """The data directory that the path is, or is in. No other directory is touched."""
    from tailrace.log.files.checkpoints import FORMAT_FILE

    if not path.exists():
        raise Failure(f"{path} does not exist", ExitCode.NOT_FOUND)
    if path.is_file():
        raise Failure(f"{path} is a file: repair takes a directory", ExitCode.USAGE)
    for candidate in (path.resolve(), path.resolve().parent):
        if files.exists(str(candidate / FORMAT_FILE)):
            return str(candidate)
    raise Failure(
        f"{path} is no data directory of tailrace's, nor a partition in one, as it has no {FORMAT_FILE}: nothing was "
        "touched",
        ExitCode.REFUSED,
    )


@contextmanager
def _held(files: "Files", data: str) -> Iterator[None]:
    from tailrace.log.directory.admission import check_admission, lock_directory
    from tailrace.log.layout.errors import DirectoryInUse, ForeignDirectory, UnknownFormat

    try:
        check_admission(files, data)
        lock = lock_directory(files, data)
    except DirectoryInUse as error:
        raise Failure(
            f"{error}: stop the broker first (tailrace log verify looks at it while it runs)", ExitCode.REFUSED
        ) from None
    except (ForeignDirectory, UnknownFormat) as error:
        raise Failure(str(error), ExitCode.REFUSED) from None
    try:
        yield
    finally:
        lock.release()


def _places(files: "Files", path: Path, topic: str | None, partition: int | None) -> "Places":
    from tailrace.log.tools.locate import NoLogHere, locate

    try:
        places = locate(files, str(path.resolve()))
    except NoLogHere as error:
        raise Failure(str(error), ExitCode.USAGE) from None

    def is_wanted(one: "TopicPartition | None") -> bool:
        if one is None:
            return topic is None and partition is None
        return topic in (None, one.topic) and partition in (None, one.partition)

    wanted = tuple(place for place in places.found if is_wanted(place.partition))
    lost = tuple(one for one in places.lost if is_wanted(one.partition))
    if not wanted and not lost:
        raise Failure(f"{path} has no such partition", ExitCode.NOT_FOUND)
    if (wanted, lost) == (places.found, places.lost):
        return places
    return replace(places, found=wanted, lost=lost, state=None)


def _require_leave(plan: "RepairPlan", *, internal: bool, accept_loss: bool) -> None:
    if plan.lost and not accept_loss:
        names = ", ".join(str(one.partition) for one in plan.lost)
        raise Failure(
            f"nothing was done: {names} would lose all records; restore the directory from a backup, or give them up "
            "with --accept-loss; --topic chooses another log",
            ExitCode.REFUSED,
        )
    if plan.internal_losses and not (internal and accept_loss):
        names = ", ".join(plan.internal_losses)
        raise Failure(
            f"nothing was done: in {names} the broker's own state would be forgotten; --accept-loss --internal goes on "
            "all the same, and --topic chooses another log",
            ExitCode.REFUSED,
        )


def _command(directory: Path, topic: str | None, partition: int | None, *, internal: bool, accept_loss: bool) -> str:
    """Returns the command that does exactly what was shown."""
    words = ["tailrace", "log", "repair", str(directory)]
    words += ["--topic", topic] if topic is not None else []
    words += ["--partition", str(partition)] if partition is not None else []
    words += ["--internal"] if internal else []
    words += ["--accept-loss"] if accept_loss else []
    return shlex.join([*words, "--apply"])


def _end_with_plan(plan: "RepairPlan", command: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**plan.as_json(), "applied": False}, indent=2))
    elif not plan.is_empty:
        print(f"\nNothing was changed. To do it:\n  {command}")
    raise typer.Exit(ExitCode.DONE if plan.is_empty else ExitCode.FAILED)


def _show_completed(names: list[str], console: "Console") -> None:
    for name in names:
        console.print(f"{name}: a replacement by compaction that was cut short is completed", markup=False)


def _show_plan(plan: "RepairPlan", console: "Console") -> None:
    if plan.is_empty:
        console.print("Nothing to repair.", style="bold green")
    for name in plan.damaged_files:
        console.print(f"{name}: it cannot be read; it is kept under another name, and the next start makes another")
    for lost in plan.lost:
        _show_lost(lost, console)
    for partition in plan.partitions:
        if partition.steps:
            _show_partition(partition, console)


def _show_lost(lost: "LostPartition", console: "Console") -> None:
    console.print(f"{lost.partition}  (lost)", style="bold", markup=False)
    if lost.is_internal:
        state = _STATE_OF.get(lost.partition.topic, "what was decided there is forgotten")
        console.print(f"  the broker's own state: {state}", style="bold yellow", soft_wrap=True)
    console.print(f"  make anew  {lost}", markup=False, soft_wrap=True)
    console.print(f"             it goes on at offset {lost.next_offset}, and the gap is recorded", markup=False)


def _show_partition(plan: "PartitionPlan", console: "Console") -> None:
    kept = f"{output.plural(plan.summary.records, 'record')} kept"
    lost = f"{output.plural(plan.offsets_lost, 'offset')} lost" if plan.offsets_lost else "nothing lost"
    console.print(f"{plan.place.name}  ({kept}, {lost})", style="bold", markup=False)
    if plan.is_internal and plan.offsets_lost and plan.place.partition is not None:
        state = _STATE_OF.get(plan.place.partition.topic, "what was decided there is forgotten")
        console.print(f"  the broker's own state: {state}", style="bold yellow", soft_wrap=True)
    for step in plan.steps:
        for line in _lines_of(step):
            console.print(line, markup=False, soft_wrap=True)


def _lines_of(step: "Step") -> Iterator[str]:
    damage = step.damage
    where = step.file
    if damage is not None and damage.length:
        where += f", byte {damage.position} ({output.plural(damage.length, 'byte')})"
    if damage is not None and damage.offsets:
        first, last = damage.first_offset, damage.last_offset
        where += f": offset {first}" if first == last else f": offsets {first} to {last}"
    yield f"  {step.action:<9}  {where}"
    yield f"             {step.reason}; {step.meaning}"


def _show_result(result: "Verification", console: "Console") -> None:
    console.print("\nDone.", style="bold green")
    for name, gap in result.gaps:
        console.print(f"  {name}: {gap}", markup=False, soft_wrap=True)
    if result.healthy:
        console.print("Healthy: no damage.", style="bold green")
    else:
        left = output.plural(len(result.damage), "damaged range")
        console.print(f"{left} left: repair again, or look with tailrace log verify", style="bold red")
