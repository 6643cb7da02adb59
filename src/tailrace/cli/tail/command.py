"""`tailrace tail`: prints the messages of topics, and continues as new ones come. Works against any Kafka."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import connection, output
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.common.topics.offsets import Partition
    from tailrace.cli.common.topics.positions import Position
    from tailrace.cli.common.topics.ranges import OffsetRange
    from tailrace.cli.common.topics.selection import Selection
    from tailrace.cli.tail.follower import Reading
    from tailrace.cli.tail.printer import Line

_POLL_SECONDS = 0.2
_QUIET_SECONDS = 1.0  # after that, a terminal shows that the verb waits

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", autocompletion=connection.complete_topics)]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="WHERE", help="earliest, latest, an offset, last:N (of each partition), or a time."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="WHERE", help="End before a time, or with an offset; does not follow."),
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", metavar="N", min=0, help="Only this one. May be repeated.")
]
Count = Annotated[int | None, typer.Option("-n", "--count", metavar="N", min=1, help="End after N messages.")]
Follow = Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="Wait for more at the end, or end there.")]
Form = Annotated[str | None, typer.Option("--format", metavar="TEMPLATE", help="Such as '%t %p %o %k: %v\\n'.")]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON for each message, as produce --json reads it.")]
Pattern = Annotated[bool, typer.Option("--pattern", help="Take each TOPIC for a regular expression.")]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="As a member of it: go on where it is, and commit what is printed.",
        autocompletion=connection.complete_groups,
    ),
]
Uncommitted = Annotated[bool, typer.Option("--uncommitted", help="Also messages of transactions not committed.")]


def tail(
    topics: Topics,
    start: From = None,
    end: To = None,
    follow: Follow = True,
    count: Count = None,
    partitions: Partitions = None,
    group: Group = None,
    as_json: AsJson = False,
    form: Form = None,
    pattern: Pattern = False,
    uncommitted: Uncommitted = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Print the messages of topics, and go on as they come.

    \b
    tailrace tail orders                               new ones; ctrl-C ends
    tailrace tail orders --from earliest --no-follow   all there is
    tailrace tail orders --from -2h -n 10              ten, from two hours ago on
    tailrace tail orders --from yesterday --to today   a day
    tailrace tail 'orders-.*' payments --json          several topics, by pattern
    tailrace tail orders --group billing               as a member of a group
    tailrace tail orders --json | tailrace produce copy --json

    A TOPIC with a character no name can have is a pattern: a regular expression that matches the whole name. New
    topics that match, and new partitions, are followed too. Without --group, reading joins none and commits nothing.

    With --group, the members share the partitions. An offset is committed after its message was written to the output
    (at the latest a second later, at the end, and before a partition goes to another member): a member that is killed
    before, prints some again. --from counts only where the group has no offset yet; `tailrace group reset` moves it.

    \b
    Times:    2026-11-15T10:00 (local, unless a zone is given), 10:00, now, today,
              yesterday, -2h, -1d12h
    Without --from: the latest when following, the earliest with --no-follow.

    \b
    --format  %t topic  %p partition  %o offset  %k key  %v value  %d time
              %T timestamp (ms)  %h headers  %K and %S bytes of key and value
              \\n \\t \\0 as usual; nothing is added
    --json    bytes that are not UTF-8 are in key_base64 and value_base64 instead

    Without either, a pipe gets the values alone, a line each, and a terminal gets partition:offset, time and key too.
    """
    from tailrace.cli.common.topics import positions
    from tailrace.cli.common.topics.selection import Selection
    from tailrace.cli.tail import printer

    begin = None if start is None else positions.given(start, "--from")
    finish = None if end is None else positions.given(end, "--to")
    if group is not None and partitions:
        raise Failure("--partition and --group exclude each other: in a group, members share them out", ExitCode.USAGE)
    if group == "":
        raise Failure("--group takes a name", ExitCode.USAGE)
    selection = Selection(topics, always=pattern)
    line = printer.line(as_json=as_json, form=form, many_topics=len(topics) > 1 or not selection.is_fixed)
    wanted = set(partitions) if partitions else None
    brokers = Connection(bootstrap, client_config)
    follows = follow and finish is None
    spans = _spans(brokers, selection, wanted, begin, finish, follow=follows, committed=not uncommitted)
    reading = _reading(brokers, spans, group, follow=follows, uncommitted=uncommitted)
    news = "new" if begin is None and group is None else "more"
    waiting = f"waiting for {news} messages; ctrl-C ends" if follows and sys.stdout.isatty() else None
    if waiting and news == "new":
        waiting += ". --from earliest shows what is already there"
    _print(reading, selection, wanted, line, count, follow=follows, waiting=waiting)


def _spans(
    brokers: Connection,
    selection: "Selection",
    wanted: set[int] | None,
    begin: "Position | None",
    finish: "Position | None",
    *,
    follow: bool,
    committed: bool,
) -> "dict[Partition, OffsetRange]":
    from tailrace.cli.common.topics import ranges as spans
    from tailrace.cli.common.topics.offsets import Offsets, partitions_of
    from tailrace.cli.common.topics.positions import Earliest, Latest
    from tailrace.cli.common.topics.selection import require

    admin = brokers.admin()
    metadata = brokers.metadata(admin)
    require(selection.names, metadata.topics, brokers.bootstrap)
    names = selection.of(metadata.topics)
    if not names and (not follow or selection.hint()):
        raise Failure(f"no topic matches{selection.hint()}", ExitCode.NOT_FOUND)
    if not names:
        output.warn("no topic matches yet; waiting for one")
    there = partitions_of(metadata, names)
    chosen = [partition for partition in there if wanted is None or partition.number in wanted]
    if there and not chosen:
        raise Failure(f"there is no such partition; {names[0]} has {len(there)}, from 0 on", ExitCode.NOT_FOUND)
    start = begin or (Latest() if follow else Earliest())
    return spans.resolve(Offsets(brokers, admin, committed=committed), chosen, start, finish, follow=follow)


def _reading(
    brokers: Connection, spans: "dict[Partition, OffsetRange]", group: str | None, *, follow: bool, uncommitted: bool
) -> "Reading":
    from tailrace.cli.common.topics.offsets import Offsets
    from tailrace.cli.tail import follower, group_member

    if group is None:
        consumer = brokers.consumer(follower.properties(follow=follow, uncommitted=uncommitted))
        return follower.Follower(brokers, consumer, spans, follow=follow)
    consumer = brokers.consumer(group_member.properties(group, follow=follow, uncommitted=uncommitted))
    return group_member.Member(brokers, consumer, Offsets(brokers, brokers.admin()), group, spans, follow=follow)


def _print(
    reading: "Reading",
    selection: "Selection",
    wanted: set[int] | None,
    line: "Line",
    count: int | None,
    *,
    follow: bool,
    waiting: str | None,
) -> None:
    """`waiting` is shown once, when nothing came for a moment; None where nothing is to be shown."""
    from tailrace.cli.common import broken_pipe
    from tailrace.util.shutdown import on_signals

    stop, reader, out = on_signals(), broken_pipe.Reader(), sys.stdout.buffer
    left, quiet_since = count, time.monotonic()
    try:
        while not (stop.is_set() or reader.is_gone or reading.is_done or left == 0):
            found = reading.read(_POLL_SECONDS)[:left]
            out.write(b"".join(map(line, found)))
            out.flush()
            reading.written(found)
            if found:
                quiet_since = time.monotonic()
            elif waiting and time.monotonic() > quiet_since + _QUIET_SECONDS:
                output.warn(waiting)
                waiting = None
            left = None if left is None else left - len(found)
            if follow:
                reading.refresh(selection, lambda partition: wanted is None or partition.number in wanted)
    except BrokenPipeError:
        broken_pipe.leave_stdout()
    finally:
        reading.close()
