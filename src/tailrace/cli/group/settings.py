"""`tailrace group set`: changes the configs of a group. Works against Kafka from 4.0 on."""

from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.common import configs, connection
from tailrace.cli.common.configs import Change
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.options import AsJson, DryRun
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.common.admin_requests import AdminRequests

Name = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=connection.complete_groups)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Such as consumer.session.timeout.ms=60s. May be repeated."),
]
Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the broker's value. May be repeated.")
]


def set_(
    name: Name,
    settings: Set = None,
    unset: Unset = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Change the configs of a consumer group (group.protocol=consumer) or share group. The group need not exist yet.

    \b
    tailrace group set billing --set consumer.session.timeout.ms=60s
    tailrace group set billing --set consumer.heartbeat.interval.ms=10s --dry-run
    tailrace group set billing --unset consumer.session.timeout.ms
    tailrace group set thumbnails --set share.record.lock.duration.ms=60s

    Such members have no timeouts of their own: what is set here counts, else group.consumer.* and group.share.* of the
    broker.
    """
    from tailrace.cli.common.admin_requests import AdminRequests

    changed = configs.given(settings, unset)
    with AdminRequests(Connection(bootstrap, client_config)) as requests:
        changes = change(requests, name, changed, dry_run=dry_run)
    configs.show(f"group {name}", changes, dry_run=dry_run, as_json=as_json)


def change(requests: "AdminRequests", name: str, changed: dict[str, str | None], *, dry_run: bool) -> list[Change]:
    """Changes the configs of a group; None takes one back. Raises Failure for a config that groups do not have."""
    before = requests.group_configs(name)
    if unknown := changed.keys() - before.keys():
        raise Failure(
            f"there is no group config {min(unknown)!r}; there are {', '.join(sorted(before))}", ExitCode.USAGE
        )
    requests.alter_group_configs(name, changed, validate_only=True)
    if not dry_run:
        requests.alter_group_configs(name, changed, validate_only=False)
    changes = []
    for key, value in changed.items():
        others = (one.value for one in before[key].settings if one.source != configs.GROUP)
        changes.append(Change(key, before[key].value, next(others, None) if value is None else value))
    return changes
