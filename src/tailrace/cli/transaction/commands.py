"""`tailrace transaction`: lists and shows transactions, and aborts one that stays open. Works against any Kafka."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import output, units
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.options import AsJson, DryRun, Yes
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.common.admin_requests import AdminRequests, Transaction

app = typer.Typer(help="List and show transactions; abort one.", no_args_is_help=True, rich_markup_mode=None)

# Ours, and Kafka's on the wire.
STATES = {
    "empty": "Empty",
    "ongoing": "Ongoing",
    "prepare_commit": "PrepareCommit",
    "prepare_abort": "PrepareAbort",
    "complete_commit": "CompleteCommit",
    "complete_abort": "CompleteAbort",
}

Id = Annotated[str, typer.Argument(metavar="ID", help="The transactional.id of a producer.")]


@app.command("list")
def list_(
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help=f"Only such: {', '.join(STATES)}. May be repeated."),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Only those open for longer, such as 90s or 10m.")
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """List transactional ids, those with an open transaction first.

    \b
    tailrace transaction list
    tailrace transaction list --state ongoing --older-than 10m
    tailrace transaction list --json | jq -r '.[].id'

    \b
    STATE     empty (none begun since the producer came), ongoing,
              prepare_commit and prepare_abort (decided, and being carried out),
              complete_commit and complete_abort (of the last one)
    OPEN FOR  since its first partition was added
    """
    from tailrace.cli.transaction import view

    if unknown := set(states or ()) - STATES.keys():
        raise Failure(f"--state takes {', '.join(STATES)}, not {min(unknown)!r}", ExitCode.USAGE)
    least_ms = -1 if older_than is None else units.milliseconds("--older-than", older_than)
    with _reach(bootstrap, client_config) as requests:
        rows = view.rows(requests.transactions(STATES[state] for state in states or ()))
    rows = [row for row in rows if older_than is None or (row["age_ms"] is not None and row["age_ms"] > least_ms)]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        output.draw(view.table(rows), output.console(markup=False))
    else:
        output.warn("there are no such transactions" if states or older_than else "there are no transactional ids")


@app.command()
def show(name: Id, as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT, client_config: ClientConfig = None) -> None:
    """Show one transactional id, and how far its open transaction holds consumers back.

    \b
    tailrace transaction show copier
    tailrace transaction show copier --json | jq '.partitions'

    Consumers with isolation.level=read_committed read up to the last stable offset of a partition, which is where
    its first open transaction begins.
    """
    from tailrace.cli.transaction import view

    with _reach(bootstrap, client_config) as requests:
        shown = view.details(_require(requests, name), requests)
    if as_json:
        print(json.dumps(shown, indent=2))
    else:
        view.show(shown, output.console(markup=False))


@app.command()
def abort(
    name: Id,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Abort the open transaction of a transactional id, and fence its producer. Asks first.

    \b
    tailrace transaction abort copier
    tailrace transaction abort copier --yes

    Nothing of the transaction becomes visible to consumers of committed records. The producer, if it still runs,
    gets an error that it is fenced, and has to be started again. Exit code 5: no transaction is ongoing.
    """
    from tailrace.cli.transaction import view

    with _reach(bootstrap, client_config) as requests:
        found = _require_ongoing(requests, name)
        producer = (found.producer_id, found.epoch)
        if dry_run:
            _report(name, f"would abort {view.described(found)}", producer, aborted=False, as_json=as_json)
            return
        if not yes:
            output.confirm(f"Abort {view.described(found)}? Its producer is fenced.")
            _require_the_same(requests, found)
        fenced = requests.fence(found)
        _report(name, f"aborted {view.described(found)}", fenced, aborted=True, as_json=as_json)


app.command("ls", hidden=True)(list_)


def _reach(bootstrap: str, client_config: list[str] | None) -> "AdminRequests":
    from tailrace.cli.common.admin_requests import AdminRequests

    brokers = Connection(bootstrap, client_config)
    brokers.metadata(brokers.admin())  # says why, where no broker answers
    return AdminRequests(brokers)


def _require(requests: "AdminRequests", name: str) -> "Transaction":
    found = requests.transaction(name) if name else None
    if found is None:
        raise Failure(
            f"there is no transactional id {name}\n  `tailrace transaction list` shows those that are known",
            ExitCode.NOT_FOUND,
        )
    return found


def _require_ongoing(requests: "AdminRequests", name: str) -> "Transaction":
    from tailrace.cli.transaction import view

    found = _require(requests, name)
    if found.state != STATES["ongoing"]:
        raise Failure(f"{name} has no ongoing transaction: its state is {view.state_of(found)}", ExitCode.REFUSED)
    return found


def _require_the_same(requests: "AdminRequests", asked_about: "Transaction") -> None:
    """The user may take long to answer, and the next transaction is another one."""
    found = _require_ongoing(requests, asked_about.transactional_id)
    if found._replace(partitions=()) != asked_about._replace(partitions=()):  # it may have got more of them
        raise Failure("that transaction has ended, and the producer has begun another: try again", ExitCode.REFUSED)


def _report(name: str, said: str, producer: tuple[int, int], *, aborted: bool, as_json: bool) -> None:
    if as_json:
        producer_id, epoch = producer
        print(json.dumps({"id": name, "aborted": aborted, "producer_id": producer_id, "producer_epoch": epoch}))
    else:
        print(said)
