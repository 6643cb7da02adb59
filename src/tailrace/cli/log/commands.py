"""`tailrace log verify` and `dump`: read a log on disk, without a broker.

The only verb that opens logs itself. `verify` and `dump` read, and do nothing else: they may look at a directory that
a broker is at work in, or one they have no right to write. `repair` is in a module of its own.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import broken_pipe, output
from tailrace.cli.common.options import AsJson
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.log.repair import repair

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tailrace.cli.log.dump import Printer
    from tailrace.log.disk.interface import Files
    from tailrace.log.files.directory_state import PartitionDirectory
    from tailrace.log.layout.damage import DamagedRange
    from tailrace.log.tools.locate import Places
    from tailrace.log.tools.survey import Survey, Tail
    from tailrace.log.tools.verify import PartitionSummary, Verification

app = typer.Typer(
    help="Look into a log on disk, without a broker: check it, print it, repair it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
@broken_pipe.ending_with_the_reader()
def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A partition, or a data directory with many.")],
    as_json: AsJson = False,
) -> None:
    """Check every byte of a log, and say what is damaged.

    \b
    tailrace log verify data                            a data directory
    tailrace log verify data/orders-0                   one partition of it
    tailrace log verify data --json | jq '.damage[]'    for programs

    Ends with 0 if all is healthy and with 1 if damage was found, or a partition is lost. What a crash left of
    unfinished writes at the end of a log (`tail`), and files that will be rebuilt from it (`derived`), are named and
    are no damage.
    """
    from tailrace.log.disk.os_files import OperatingSystemFiles
    from tailrace.log.tools.verify import bytes_to_read
    from tailrace.log.tools.verify import verify as verify_places

    if directory.is_file():
        raise Failure(
            f"{directory} is a file: verify takes a directory (tailrace log dump reads one file)", ExitCode.USAGE
        )
    files = OperatingSystemFiles()
    places = _locate(files, directory)
    with output.progress_bar("Verifying", bytes_to_read(files, places)) as progress:
        result = verify_places(files, places, progress)
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        _show(result, output.console())
    raise typer.Exit(ExitCode.DONE if result.healthy else ExitCode.FAILED)


@app.command()
@broken_pipe.ending_with_the_reader()
def dump(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A segment, a partition, or a data directory.")],
    as_json: AsJson = False,
    batches: Annotated[bool, typer.Option("--batches", help="One line for each batch, not for each record.")] = False,
    first: Annotated[int, typer.Option("--from", metavar="OFFSET", min=0, help="The first offset to print.")] = 0,
    last: Annotated[int | None, typer.Option("--to", metavar="OFFSET", min=0, help="The last one.")] = None,
) -> None:
    """Print the records of a log.

    \b
    tailrace log dump data/orders-0                           one partition
    tailrace log dump data/orders-0 --from 100 --to 200       a part of it
    tailrace log dump data --json | jq .value                 a data directory
    tailrace log dump 00000000000000000000.log --batches      one segment

    With --json, bytes that are not UTF-8 are in `key_base64` and `value_base64` instead of `key` and `value`; in
    `headers`, an object {"base64": …} stands in their place. What is damaged is named on stderr and left out, the
    rest is printed, and the command ends with 1.
    """
    from tailrace.cli.log.dump import printer
    from tailrace.log.disk.os_files import OperatingSystemFiles

    files = OperatingSystemFiles()
    surveys = _surveys(files, path, first, last)
    total = sum(survey.segments[number].size for survey in surveys for number in survey.wanted)
    show = printer(as_json=as_json, batches=batches, first=first, last=last)
    complete = True
    with output.progress_bar("Reading", 0 if sys.stdout.isatty() else total) as progress:
        for survey in surveys:
            place = survey.place
            where: dict[str, object] = place.partition._asdict() if place.partition else {}
            show.begin(place.name, where, start_offset=place.start_offset or 0, many=len(surveys) > 1)
            complete &= _dump(survey, show, progress)
    show.flush()
    raise typer.Exit(ExitCode.DONE if complete else ExitCode.FAILED)


app.command()(repair)


def _locate(files: "Files", path: Path) -> "Places":
    from tailrace.log.tools.locate import NoLogHere, locate

    if not path.exists():
        raise Failure(f"{path} does not exist", ExitCode.NOT_FOUND)
    try:
        return locate(files, str(path.resolve()))
    except NoLogHere as error:
        raise Failure(str(error), ExitCode.USAGE) from None


def _surveys(files: "Files", path: Path, first: int, last: int | None) -> "list[Survey]":
    from tailrace.log.tools.locate import locate_partition
    from tailrace.log.tools.survey import Survey

    if path.is_file():
        base_offset = _base_offset(path)
        # Who names a file wants all of it, also what lies before the start of the log.
        place: PartitionDirectory = locate_partition(files, str(path.resolve().parent))._replace(start_offset=None)
        return [Survey(files, place, first=base_offset, last=base_offset)]
    return [Survey(files, place, first=first, last=last) for place in _locate(files, path).found]


def _base_offset(path: Path) -> int:
    from tailrace.log.layout.names import LOG, parse_numbered

    parsed = parse_numbered(path.name)
    if parsed is None or parsed[1] != LOG:
        raise Failure(
            f"{path} is not named like a segment: expected is a name like 00000000000000000000.log", ExitCode.USAGE
        )
    return parsed[0]


def _dump(survey: "Survey", show: "Printer", progress: Callable[[int], None]) -> bool:
    """Prints one partition. Says whether everything could be printed."""
    from tailrace.log.scan.scan import FoundBatch
    from tailrace.log.tools.survey import Tail

    complete = True
    for finding in survey:
        file = survey.place.prefix + (survey.current.name if survey.current else "")
        if isinstance(finding, FoundBatch):
            if show.is_behind(finding.header):
                break
            progress(finding.header.size)
            trouble = show.batch(finding.position, finding.header, finding.window, finding.at, file)
        else:
            trouble = str(finding._replace(file=survey.place.prefix + finding.file))
            if not isinstance(finding, Tail):
                show.damage(finding.as_json())
        if trouble is not None:
            show.flush()
            output.warn(trouble)
            complete &= isinstance(finding, Tail)
    return complete


def _show(result: "Verification", console: "Console") -> None:
    console.print(_table(result.partitions))
    sections: list[tuple[str, str, list[str]]] = [
        ("Lost partitions", "bold red", [str(lost) for lost in result.lost]),
        ("Damage", "bold red", [line for damage in result.damage for line in _damage(damage)]),
        ("Tail", "bold yellow", [line for tail in result.tail for line in _tail(tail)]),
        ("Derived files", "bold", [str(fault) for fault in result.derived]),
        ("Recorded gaps", "bold", [f"{name}: {gap}" for name, gap in result.gaps]),
        ("Notes", "bold", result.notes),
    ]
    for title, style, lines in sections:
        if lines:
            console.print(f"\n{title}", style=style)
        for line in lines:
            console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print()
    if result.healthy:
        console.print("Healthy: no damage.", style="bold green")
    else:
        found = output.plural(len(result.damage), "damaged range")
        if result.lost:
            found = f"{output.plural(len(result.lost), 'lost partition')}, {found}"
        console.print(f"{found}. Everything else can be read. Nothing was changed.", style="bold red")
        console.print("With the broker stopped, tailrace log repair shows what can be done about it.")


def _damage(damage: "DamagedRange") -> list[str]:
    """A line that says where, and one that says what."""
    where = f"{damage.file}, byte {damage.position}" if damage.position or damage.length else damage.file
    extent = f" ({output.plural(damage.length, 'byte')})" if damage.length else ""
    offsets = f"offsets {damage.first_offset} to {damage.last_offset}"
    if damage.first_offset == damage.last_offset:
        offsets = f"offset {damage.first_offset}"
    if not damage.offsets:
        return [f"{where}{extent}", f"    surplus bytes, no offset is lost: {damage.reason}"]
    return [f"{where}{extent}", f"    {offsets} cannot be read: {damage.reason}"]


def _tail(tail: "Tail") -> list[str]:
    return [
        f"{tail.file}, byte {tail.position} ({output.plural(tail.length, 'byte')})",
        f"    a torn write: {tail.reason}",
        f"    the next start ends the log at offset {tail.first_offset} and keeps these bytes aside",
    ]


def _table(partitions: "list[PartitionSummary]") -> "Table":
    from rich.table import Table

    styles = {"healthy": "green", "torn": "yellow", "damaged": "bold red", "lost": "bold red"}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("PARTITION", overflow="fold")
    for heading in ("SEGMENTS", "BATCHES", "RECORDS", "SIZE", "FROM", "TO"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    for partition in partitions:
        counts = partition.segments, partition.batches, partition.records
        last = partition.end_offset - 1 if partition.end_offset > partition.start_offset else None
        table.add_row(
            partition.name,
            *map(output.number, counts),
            output.size(partition.bytes),
            output.number(partition.start_offset),
            "-" if last is None else output.number(last),
            f"[{styles[partition.state]}]{partition.state}",
        )
    return table
