"""`tailrace config`: shows and changes the configs of brokers. Works against any Kafka. `view` has the output.

A config can be set for one broker or for all; that of one broker counts more. Either counts more than the file that the
broker was started with.
"""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import configs, output
from tailrace.cli.common.configs import Change
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.options import AsJson, DryRun, Set, Unset
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.common.admin_requests import AdminRequests, Config
    from tailrace.cli.common.client import ClusterMetadata

app = typer.Typer(help="Show and change the configs of brokers.", no_args_is_help=True, rich_markup_mode=None)

Broker = Annotated[int | None, typer.Option("--broker", metavar="ID", min=0, help="One broker, by its id.")]


@app.command()
def show(
    names: Annotated[list[str] | None, typer.Argument(metavar="CONFIG")] = None,
    broker: Broker = None,
    everything: Annotated[bool, typer.Option("--all", help="Those that are at their defaults, too.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Show the configs of a broker: where each comes from, and whether it can be changed at run time.

    \b
    tailrace config show
    tailrace config show log.retention.ms max.connections
    tailrace config show --all
    tailrace config show --all --json | jq -r '.configs[].name'

    Without --broker, it is the first one of the cluster. FROM is "broker's file" for what the broker was started with.
    """
    from tailrace.cli.config import view

    brokers, metadata = _reach(bootstrap, client_config)
    one = min(metadata.brokers) if broker is None else broker
    with _requests(brokers) as requests:
        shown = view.rows(requests.broker_configs(one), names or [], defaults=everything)
    if as_json:
        print(json.dumps({"broker": one, "configs": shown}, indent=2))
    else:
        view.show(shown, f"broker {one}, of {output.plural(len(metadata.brokers), 'broker')}")


@app.command("set")
def set_(
    settings: Set = None,
    unset: Unset = None,
    broker: Broker = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Change configs of all brokers, or with --broker of one. They hold at once, and after a restart.

    \b
    tailrace config set --set log.retention.ms=3d --set max.connections=2000
    tailrace config set --unset max.connections
    tailrace config set --set message.max.bytes=5MB --dry-run

    A config that the broker reads only when it starts is refused: change the file it was started with.
    """
    changed = configs.given(settings, unset)
    brokers, metadata = _reach(bootstrap, client_config)
    with _requests(brokers) as requests:
        now = requests.broker_configs(min(metadata.brokers) if broker is None else broker)
        changes = _plan(now, changed, configs.ALL_BROKERS if broker is None else configs.ONE_BROKER)
        requests.alter_broker_configs(broker, changed, validate_only=True)
        if not dry_run:
            requests.alter_broker_configs(broker, changed, validate_only=False)
    whose = "all brokers" if broker is None else f"broker {broker}"
    configs.show(whose, changes, dry_run=dry_run, as_json=as_json)
    if broker is None:
        _warn_of_own(now, changed)


def _reach(bootstrap: str, client_config: list[str] | None) -> "tuple[Connection, ClusterMetadata]":
    brokers = Connection(bootstrap, client_config)
    metadata = brokers.metadata(brokers.admin())
    if not metadata.brokers:
        raise Failure(f"{bootstrap} names no broker: the cluster is starting. Try again", ExitCode.FAILED)
    return brokers, metadata


def _requests(brokers: Connection) -> "AdminRequests":
    from tailrace.cli.common.admin_requests import AdminRequests

    return AdminRequests(brokers)


def _plan(now: "dict[str, Config]", changed: dict[str, str | None], layer: int) -> list[Change]:
    """The values that count, before and after the change."""
    from tailrace.cli.config import view

    view.require(changed, now)
    return [
        Change(name, *("(secret)",) * 2)
        if now[name].is_secret
        else Change(name, now[name].value, view.after(now[name], value, layer))
        for name, value in changed.items()
    ]


def _warn_of_own(now: "dict[str, Config]", changed: dict[str, str | None]) -> None:
    for name in changed:
        if now[name].source == configs.ONE_BROKER:
            output.warn(f"{name} was set for a broker, which counts more; `--broker ID --unset {name}` takes that back")
