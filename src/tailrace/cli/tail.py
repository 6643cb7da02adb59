"""`tailrace tail`: prints the messages of topics, and goes on as they come. Works against any Kafka."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli import connection, output
from tailrace.cli.connection import DEFAULT, Bootstrap, ClientConfig, Connection
from tailrace.cli.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.offsets import Partition
    from tailrace.cli.positions import Position
    from tailrace.cli.printing import Line
    from tailrace.cli.selection import Selection
    from tailrace.cli.spans import Span

_POLL_SECONDS = 0.2

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
Uncommitted = Annotated[bool, typer.Option("--uncommitted", help="Also messages of transactions not committed.")]


def tail(
    topics: Topics,
    start: From = None,
    end: To = None,
    follow: Follow = True,
    count: Count = None,
    partitions: Partitions = None,
    as_json: AsJson = False,
    form: Form = None,
    pattern: Pattern = False,
    uncommitted: Uncommitted = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Print the messages of topics, and go on as they come.

    \b
    tailrace tail orders                               what comes from now on; ctrl-C ends
    tailrace tail orders --from earliest --no-follow   all there is
    tailrace tail orders --from -2h -n 10              ten messages, from two hours ago on
    tailrace tail orders --from yesterday --to today   a day
    tailrace tail 'orders-.*' payments --json          several topics, by pattern
    tailrace tail orders --json | tailrace produce copy --json

    A TOPIC with a character no name can have is a pattern: a regular expression that matches the whole name. New
    topics that match, and new partitions, are followed too. Reading joins no group and commits nothing.

    \b
    Times:    2026-11-15T10:00 (local, unless a zone is given), 10:00, now, today, yesterday, -2h, -1d12h
    Without --from: the latest when following, the earliest with --no-follow.

    \b
    --format  %t topic  %p partition  %o offset  %k key  %v value  %T timestamp (ms)  %d time  %h headers
              %K and %S bytes of key and value  \\n \\t \\0 as usual; nothing is added
    --json    bytes that are not UTF-8 are in key_base64 and value_base64 instead of key and value

    Without either, a pipe gets the values alone, a line each, and a terminal gets partition:offset, time and key too.
    """
    from tailrace.cli import printing
    from tailrace.cli.selection import Selection

    begin, finish = _position(start, "--from"), _position(end, "--to")
    selection = Selection(topics, always=pattern)
    line = printing.line(as_json=as_json, form=form, many_topics=len(topics) > 1 or not selection.is_fixed)
    wanted = set(partitions) if partitions else None
    brokers = Connection(bootstrap, client_config)
    follows = follow and finish is None
    spans = _spans(brokers, selection, wanted, begin, finish, follow=follows, committed=not uncommitted)
    _print(brokers, selection, wanted, spans, line, count, follow=follows, uncommitted=uncommitted)


def _position(text: str | None, option: str) -> "Position | None":
    from tailrace.cli import positions
    from tailrace.cli.times import NoTime

    try:
        return None if text is None else positions.parse(text, datetime.now().astimezone())
    except NoTime as error:
        raise Failure(f"{option}: {error}", ExitCode.USAGE) from None


def _spans(
    brokers: Connection,
    selection: "Selection",
    wanted: set[int] | None,
    begin: "Position | None",
    finish: "Position | None",
    *,
    follow: bool,
    committed: bool,
) -> "dict[Partition, Span]":
    from tailrace.cli import spans
    from tailrace.cli.offsets import Offsets, partitions_of
    from tailrace.cli.positions import Earliest, Latest
    from tailrace.cli.selection import require

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


def _print(
    brokers: Connection,
    selection: "Selection",
    wanted: set[int] | None,
    spans: "dict[Partition, Span]",
    line: "Line",
    count: int | None,
    *,
    follow: bool,
    uncommitted: bool,
) -> None:
    from tailrace.cli import following, stopping

    stop, reader, out = stopping.Stop(), stopping.Reader(), sys.stdout.buffer
    consumer = brokers.consumer(following.properties(follow=follow, uncommitted=uncommitted))
    follower = following.Follower(brokers, consumer, spans, follow=follow)
    left = count
    try:
        while not (stop.asked or reader.is_gone or follower.is_done or left == 0):
            found = follower.read(_POLL_SECONDS)[:left]
            out.write(b"".join(map(line, found)))
            out.flush()
            left = None if left is None else left - len(found)
            if follow:
                follower.refresh(selection, lambda partition: wanted is None or partition.number in wanted)
    except BrokenPipeError:
        stopping.leave_stdout()
    finally:
        consumer.close()
