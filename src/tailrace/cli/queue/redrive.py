"""`tailrace queue redrive`: sends dead letters again, each once."""

import json
from typing import Annotated

import typer

from tailrace.cli.common import connection, output
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig
from tailrace.cli.common.options import AsJson, DryRun, Yes


def redrive(
    source: Annotated[str, typer.Argument(metavar="DLQ", autocompletion=connection.complete_topics)],
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="There, and not where they came from.")
    ] = None,
    count: Annotated[int | None, typer.Option("--max", metavar="N", min=1, help="At most so many.")] = None,
    rate: Annotated[int | None, typer.Option("--rate", metavar="N", min=1, help="At most so many in a second.")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Send dead letters again: to the topic that they came from, or to another one. Shows what, and asks first.

    \b
    tailrace queue redrive dlq.thumbnails --dry-run
    tailrace queue redrive dlq.thumbnails --to thumbnails.again
    tailrace queue redrive dlq.thumbnails --max 100 --rate 10 --yes

    Without --to, every group that reads the topic gets these messages once more, and every queue on it. A topic of its
    own, with a queue of its own, repeats them for no other.

    Each dead letter is sent once, whatever is killed meanwhile: it is written, and the position of the group
    tailrace-redrive in DLQ moved, in one transaction. The next redrive goes on from there; `tailrace group reset
    tailrace-redrive` moves it. The dead letters stay in DLQ. Key, value and headers are those of the first time,
    without __dlq.errors.*; the timestamp is new.
    """
    from tailrace.cli.queue import redriving
    from tailrace.cli.queue.here import reach

    sent = 0
    with reach(bootstrap, client_config) as here:
        plan = redriving.plan(here, source, to, count)
        if not as_json:
            redriving.show(plan, dry_run=dry_run)
        if plan.total and not dry_run:
            if not yes:
                output.confirm(f"Send {output.plural(plan.total, 'dead letter')} again?")
            sent = redriving.carry_out(here, plan, rate)
    if as_json:
        print(json.dumps(plan.as_json(sent, dry_run=dry_run), indent=2))
    elif sent:
        print(f"sent {output.plural(sent, 'dead letter')} again")
    if plan.total and not dry_run and sent < plan.total:
        output.interrupt("the next redrive goes on with the others")
