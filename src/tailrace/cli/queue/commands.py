"""`tailrace queue`: makes queues of topics, shows them, works on them, and sends their dead letters again.

A queue is a share group. Works against any Kafka with share groups; what only our broker knows is empty elsewhere.
"""

import json
from typing import Annotated

import typer

from tailrace.cli.common import connection, output
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig
from tailrace.cli.common.options import AsJson, DryRun, Set, Unset, Yes
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.queue.redrive import redrive
from tailrace.cli.queue.work import work

app = typer.Typer(
    help="Queues: make, show and work on them; send dead letters again.", no_args_is_help=True, rich_markup_mode=None
)

_ATTEMPTS = 5


Name = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=connection.complete_queues)]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=connection.complete_topics)]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Topic,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="The first message: earliest, latest or a time.")
    ] = "earliest",
    dead_letter: Annotated[
        str | None,
        typer.Option("--dead-letter", metavar="TOPIC", help="What fails too often goes there; made if it is missing."),
    ] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", metavar="N", min=1, help="How often a message is tried.")
    ] = _ATTEMPTS,
    lock: Annotated[
        str,
        typer.Option("--lock", metavar="TIME", help="How long a worker has a message, unless it asks for more."),
    ] = "30s",
    retry_delay: Annotated[
        str | None,
        typer.Option("--retry-delay", metavar="TIME", help="Before the second attempt: 1s if not given; 0 is none."),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Make a queue of a topic: its messages are shared among workers one by one.

    \b
    tailrace queue create thumbnails images
    tailrace queue create thumbnails images --dead-letter dlq.thumbnails
    tailrace queue create mails orders --from latest --attempts 3 --lock 1m

    Nothing is taken from the topic: other groups read it as before, and another queue on it gets every message again.
    A message is done when a worker accepts it. Released, or not accepted while it is locked, it comes again, each time
    after a delay twice as long. A group may be a queue of several topics.
    """
    from tailrace.cli.queue import creation
    from tailrace.cli.queue.here import reach

    asked = creation.Asked(name, topic, start, dead_letter, attempts, lock, retry_delay)
    if not name:
        raise Failure("GROUP is a name", ExitCode.USAGE)
    with reach(bootstrap, client_config) as here:
        made = creation.plan(here, asked)
        if not dry_run:
            creation.carry_out(here, made)
    if as_json:
        print(json.dumps(made.as_json(dry_run=dry_run), indent=2))
    else:
        creation.show(made, dry_run=dry_run)


@app.command("list")
def list_(as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT, client_config: ClientConfig = None) -> None:
    """List queues, with how many messages are not finished.

    \b
    tailrace queue list
    tailrace queue list --json | jq -r '.[] | select(.backlog > 0) | .name'
    """
    from tailrace.cli.queue import view
    from tailrace.cli.queue.here import reach

    with reach(bootstrap, client_config) as here:
        rows = view.rows(here)
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        output.draw(view.table(rows), output.console(markup=False))
    else:
        output.warn(f"there are no queues at {bootstrap} yet; `tailrace queue create GROUP TOPIC` makes one")


@app.command()
def show(
    name: Name, as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT, client_config: ClientConfig = None
) -> None:
    """Show one queue: what waits, what workers have, and what has failed.

    \b
    tailrace queue show thumbnails
    tailrace queue show thumbnails --json | jq '.topics[].backlog'

    \b
    BACKLOG    messages that are not finished, those in flight and parked too
    IN FLIGHT  messages that workers have
    PARKED     messages that wait for their time: a delay, or the next attempt
    OLDEST     for how long the oldest of them has been in the topic
    RATE       messages finished in a second, counted for half a second

    Of a Kafka that is not tailrace, only start, backlog and rate are known; the rest is null.
    """
    from tailrace.cli.queue import view
    from tailrace.cli.queue.here import reach

    with reach(bootstrap, client_config) as here:
        shown = view.details(here, name, here.require(name))
    if as_json:
        print(json.dumps(shown, indent=2))
    else:
        view.show(shown, output.console(markup=False))


@app.command()
def peek(
    name: Name,
    topic: Topic,
    count: Annotated[int, typer.Option("--max", metavar="N", min=1, max=100_000, help="So many.")] = 10,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Look at the next messages of a queue, without taking them from it.

    \b
    tailrace queue peek thumbnails images
    tailrace queue peek thumbnails images --json | jq 'select(.attempt > 1)'

    \b
    STATE    available, acquired (a worker has it), or parked (it waits for its
             time, or to become a dead letter)
    ATTEMPT  how often it has been delivered

    --json is as `tailrace tail --json`, with state and attempt. Of a Kafka that is not tailrace both are null, and
    messages may be shown that are finished already.
    """
    from tailrace.cli.queue import peek as peeking
    from tailrace.cli.queue.here import reach

    with reach(bootstrap, client_config) as here:
        here.require(name)
        found = peeking.messages_of(here, name, topic, count)
    peeking.show(found, as_json=as_json)
    if not found:
        output.warn(f"queue {name} has no message of {topic} that is not finished")


@app.command()
def purge(
    name: Name,
    topic: Topic,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Finish all messages of a queue that wait now, without any work done. Asks first.

    \b
    tailrace queue purge thumbnails images --dry-run
    tailrace queue purge thumbnails images --yes

    The messages stay in the topic, for other groups. Refused while the queue has members.
    """
    from tailrace.cli.queue import purge as purging
    from tailrace.cli.queue.here import members_of, reach, require_no_members

    with reach(bootstrap, client_config) as here:
        group = here.require(name)
        plan = purging.plan(here, name, topic)
        require_no_members(name, members_of(group), "nothing was purged")
        what = f"{output.plural(plan.messages, 'message')} of {topic}"
        if not (yes or dry_run):
            output.confirm(f"Finish {what} in queue {name}, without any work done?")
        if not dry_run:
            purging.carry_out(here, name, plan)
    if as_json:
        print(json.dumps({"name": name, "topic": topic, "dry_run": dry_run, "messages": plan.messages}, indent=2))
    else:
        print(f"{'would purge' if dry_run else 'purged'} {what} from queue {name}")


@app.command("set")
def set_(
    name: Name,
    settings: Set = None,
    unset: Unset = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Change the configs of a queue, while its workers work.

    \b
    tailrace queue set thumbnails --set share.record.lock.duration.ms=1m
    tailrace queue set thumbnails --set tailrace.share.order=key --dry-run
    tailrace queue set thumbnails --unset share.delivery.count.limit

    They are the configs of a share group; `tailrace queue show --json` has those that are set.
    """
    from tailrace.cli.common import configs
    from tailrace.cli.group.settings import change
    from tailrace.cli.queue.here import reach

    changed = configs.given(settings, unset)
    with reach(bootstrap, client_config) as here:
        here.require(name)
        changes = change(here.requests, name, changed, dry_run=dry_run)
    configs.show(f"queue {name}", changes, dry_run=dry_run, as_json=as_json)


app.command("work")(work)
app.command("redrive")(redrive)
app.command("ls", hidden=True)(list_)
