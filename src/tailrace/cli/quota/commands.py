"""`tailrace quota`: shows and changes what users, client ids and addresses may do. Works against any Kafka."""

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import configs, output, units
from tailrace.cli.common.configs import Change
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.options import AsJson, DryRun, Set, Unset
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.quota import entities

if TYPE_CHECKING:
    from tailrace.cli.common.admin_requests import AdminRequests

app = typer.Typer(
    help="Show and change what users, client ids and addresses may do.", no_args_is_help=True, rich_markup_mode=None
)

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client id.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="Each user without quotas of its own.")]
ClientDefaults = Annotated[bool, typer.Option("--client-defaults", help="Each client id without quotas of its own.")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="Each address without quotas of its own.")]


@app.command()
def show(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    user_defaults: UserDefaults = False,
    client_defaults: ClientDefaults = False,
    ip_defaults: IpDefaults = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Show the quotas that were set: all of them, or those of a user, a client id or an address.

    \b
    tailrace quota show
    tailrace quota show --client-id importer
    tailrace quota show --json | jq '.[] | select(.quotas.producer_byte_rate)'

    In JSON, a name that is null is the default.
    """
    names = {entities.USER: user, entities.CLIENT_ID: client_id, entities.IP: ip}
    defaults = {entities.USER: user_defaults, entities.CLIENT_ID: client_defaults, entities.IP: ip_defaults}
    entity = entities.given(names, defaults)
    with _reach(bootstrap, client_config) as requests:
        found = sorted(requests.quotas(entity), key=lambda one: entities.rank(one[0]))
    if as_json:
        print(json.dumps([{"entity": who, "quotas": quotas} for who, quotas in found], indent=2))
        return
    if not found:
        output.warn(f"no quotas are set for {entities.named(entity)}" if entity else "no quotas are set")
        return
    drawn = output.table("OF", "QUOTA", "VALUE", texts=("QUOTA", "VALUE"))
    for who, quotas in found:
        for key, value in sorted(quotas.items()):
            drawn.add_row(entities.named(who), key, units.explained(key, _text(value)))
    output.draw(drawn, output.console(markup=False))


@app.command("set")
def set_(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    user_defaults: UserDefaults = False,
    client_defaults: ClientDefaults = False,
    ip_defaults: IpDefaults = False,
    settings: Set = None,
    unset: Unset = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Set and remove quotas of a user, a client id, a user's client id, or an address. They hold at once.

    \b
    tailrace quota set --client-id importer --set producer_byte_rate=1MB
    tailrace quota set --user ann --client-defaults --set request_percentage=50
    tailrace quota set --ip-defaults --set connection_creation_rate=50
    tailrace quota set --client-id importer --unset producer_byte_rate

    \b
    producer_byte_rate        bytes a second
    consumer_byte_rate        bytes a second
    request_percentage        per cent of the time of one of the broker's threads
    controller_mutation_rate  partitions created and deleted a second
    connection_creation_rate  connections a second, of an ip
    """
    names = {entities.USER: user, entities.CLIENT_ID: client_id, entities.IP: ip}
    defaults = {entities.USER: user_defaults, entities.CLIENT_ID: client_defaults, entities.IP: ip_defaults}
    entity = entities.given(names, defaults)
    if not entity:
        raise Failure("whose quotas? Give --user, --client-id, --ip, or the defaults of one", ExitCode.USAGE)
    changed = {key: _number(key, text) for key, text in configs.given(settings, unset).items()}
    with _reach(bootstrap, client_config) as requests:
        now = dict(quotas for _, one in requests.quotas(entity, strict=True) for quotas in one.items())
        requests.alter_quotas(entity, changed, validate_only=True)
        if not dry_run:
            requests.alter_quotas(entity, changed, validate_only=False)
    changes = [Change(key, _text(now.get(key)), _text(value)) for key, value in changed.items()]
    configs.show(entities.named(entity), changes, dry_run=dry_run, as_json=as_json)


def _reach(bootstrap: str, client_config: list[str] | None) -> "AdminRequests":
    from tailrace.cli.common.admin_requests import AdminRequests

    brokers = Connection(bootstrap, client_config)
    brokers.metadata(brokers.admin())  # says why, where no broker answers
    return AdminRequests(brokers)


def _number(key: str, text: str | None) -> float | None:
    try:
        value = None if text is None else float(text)
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise Failure(f"{key} cannot be {text!r}: it takes a number, or an amount such as 10MB", ExitCode.USAGE)
    return value


def _text(value: float | None) -> str | None:
    """Without the fraction of a whole number."""
    if value is None:
        return None
    return str(int(value)) if value == math.floor(value) else str(value)
