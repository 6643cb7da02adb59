"""`tailrace group`: lists, shows, resets, copies and deletes consumer groups.

Works against any Kafka. Whatever moves or removes an offset is shown first, offset by offset, and is refused while the
group has members: they would commit over it. `view` has the output.
"""

import json
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tailrace.cli.common import connection, output
from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.options import AsJson, DryRun, Yes
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.common.client import ClusterMetadata
    from tailrace.cli.common.offsets import Offsets, Partition
    from tailrace.cli.common.positions import Position
    from tailrace.cli.group.groups import Commits, Groups
    from tailrace.cli.group.reset import Plan

app = typer.Typer(
    help="List and show groups; move, copy and delete what they have committed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_STATES = ("stable", "empty", "rebalancing", "dead")

Name = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=connection.complete_groups)]
Names = Annotated[list[str], typer.Argument(metavar="GROUP", autocompletion=connection.complete_groups)]
States = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help=f"Only such: {', '.join(_STATES)}. May be repeated."),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="WHERE", help="earliest, latest, an offset, last:N (of each partition), or a time."),
]
Shift = Annotated[int | None, typer.Option("--shift", metavar="N", help="So many messages on; -N: so many back.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:P,P…]", help="Only this one, or some of its partitions. May be repeated."),
]


@app.command("list")
def list_(
    states: States = None,
    lagging: Annotated[bool, typer.Option("--lagging", help="Only those that have messages to read.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """List groups, with how many messages they have still to read.

    \b
    tailrace group list
    tailrace group list --lagging --state empty          behind, and without members
    tailrace group list --json | jq -r '.[].name'

    \b
    STATE  stable, rebalancing (members come or go), empty (no members), dead
    KIND   classic or consumer, by the protocol its members speak; simple: offsets, without members ever
    LAG    by offsets, as `group show` counts it; - where nothing was committed
    """
    from tailrace.cli.group import view as group_view

    if unknown := set(states or ()) - set(_STATES):
        raise Failure(f"--state takes {', '.join(_STATES)}, not {min(unknown)!r}", ExitCode.USAGE)
    here = _reach(bootstrap, client_config)
    rows = group_view.rows(here.groups, here.offsets, here.metadata, set(states or ()))
    rows = [row for row in rows if row["lag"] or not lagging]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        output.draw(group_view.table(rows), output.console(markup=False))
    elif states or lagging:
        output.warn("there are no such groups")
    else:
        output.warn(f"there are no groups at {bootstrap} yet; `tailrace tail TOPIC --group NAME` makes one")


@app.command()
def show(
    name: Name, as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT, client_config: ClientConfig = None
) -> None:
    """Show one group: its members, what they are assigned, and how far they are.

    \b
    tailrace group show billing
    tailrace group show billing --json | jq '.partitions[] | select(.lag > 0)'

    LAG is what is between the committed offset and the end of the log. What compaction removed, and what marks the
    end of transactions, counts too.
    """
    from tailrace.cli.group import view as group_view

    here = _reach(bootstrap, client_config)
    found = here.groups.require([name])[name]
    shown = group_view.details(here.offsets, here.metadata, found, here.groups.committed([name])[name])
    if as_json:
        print(json.dumps(shown, indent=2))
    else:
        group_view.show(shown, output.console(markup=False))


@app.command()
def reset(
    name: Name,
    to: To = None,
    shift: Shift = None,
    topics: Topics = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Move a group to another place in its topics. Shows from where to where, and asks first.

    \b
    tailrace group reset billing --to earliest --dry-run             what all again would mean
    tailrace group reset billing --to -2h                            the last two hours again
    tailrace group reset billing --to yesterday --topic orders       one topic
    tailrace group reset billing --to 4711 --topic orders:0          one partition
    tailrace group reset billing --shift 1 --topic orders:0          past one message
    tailrace group reset billing --shift -100                        a hundred of each partition again
    tailrace group reset new --to latest --topic orders --yes        a group that is not there yet

    Without --topic, it moves wherever it has committed an offset. Refused while it has members. WHERE is what
    `tailrace tail --from` takes; what would be outside of a log becomes the log's start or end, and that is said.
    """
    from tailrace.cli.group import groups
    from tailrace.cli.group import reset as resetting

    position = _position(to, shift)
    here = _reach(bootstrap, client_config)
    group = here.groups.described([name])[name] if topics else here.groups.require([name])[name]
    commits = here.groups.committed([name])[name]
    where = groups.standings(here.offsets, _chosen(here, name, topics, commits), commits)
    if position is None:
        plan = resetting.shifted(where, shift or 0)
    else:
        plan = resetting.to_position(here.offsets, where, position)
    output.draw(resetting.table(plan), output.console(markup=False))
    groups.require_no_members(group, "nothing was reset")
    _reset(here, name, plan, yes=yes, dry_run=dry_run)


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", autocompletion=connection.complete_groups)],
    target: Annotated[str, typer.Argument(metavar="TO")],
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Copy what a group has committed to a new name, which goes on from there by itself.

    \b
    tailrace group copy billing billing-test
    tailrace group copy billing billing-test --dry-run

    The first may go on working meanwhile. The second must not be there: nothing is overwritten.
    """
    if source == target:
        raise Failure("a group cannot be copied to itself", ExitCode.USAGE)
    here = _reach(bootstrap, client_config)
    here.groups.require([source])
    _require_free(here, target)
    commits = _existing(here, here.groups.committed([source])[source])
    if not commits:
        raise Failure(f"group {source} has committed nothing that could be copied", ExitCode.REFUSED)
    if not dry_run:
        here.groups.commit(target, commits)
    _print(commits)
    offsets = output.plural(len(commits), "offset")
    print(f"{'would copy' if dry_run else 'copied'} {offsets} of {source} to {target}")


@app.command()
def delete(
    names: Names,
    only: Annotated[
        list[str] | None,
        typer.Option("--offsets", metavar="TOPIC[:P,P…]", help="Only its offsets in this topic. May be repeated."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Delete groups, or some of their offsets. Shows the offsets, and asks first.

    \b
    tailrace group delete billing
    tailrace group delete billing shipping --yes
    tailrace group delete billing --offsets orders            what it committed in one topic
    tailrace group delete billing --offsets orders:0,1        in two partitions

    Refused while a group has members. No message is deleted; each offset is printed, so that it can be set again.
    """
    from tailrace.cli.group import delete as deleting
    from tailrace.cli.group import groups
    from tailrace.cli.group.partitions import Choice

    names = list(dict.fromkeys(names))
    choice = Choice(only, "--offsets") if only else None
    here = _reach(bootstrap, client_config)
    found, committed = here.groups.require(names), here.groups.committed(names)
    for name in names:
        groups.require_no_members(found[name], "nothing was deleted")
    plans = [deleting.Deletion(name, committed[name], choice) for name in names]
    for plan in plans:
        print(f"{'would delete' if dry_run else 'to be deleted:'} {plan}")
        _print(plan.doomed)
    if dry_run:
        return
    if not yes:
        output.confirm(f"Delete {'all of that' if len(plans) > 1 else plans[0]}?")
    for plan in plans:
        plan.carry_out(here.groups)
        print(f"deleted {plan}{plan.way_back}")


app.command("ls", hidden=True)(list_)
app.command("rm", hidden=True)(delete)


class _Here(NamedTuple):
    """Brokers that answer, and what can be asked."""

    groups: "Groups"
    offsets: "Offsets"
    metadata: "ClusterMetadata"
    bootstrap: str


def _reach(bootstrap: str, client_config: list[str] | None) -> _Here:
    from tailrace.cli.common.offsets import Offsets
    from tailrace.cli.group.groups import Groups

    brokers = Connection(bootstrap, client_config)
    admin = brokers.admin()
    metadata = brokers.metadata(admin)
    return _Here(Groups(brokers, admin), Offsets(brokers, admin), metadata, bootstrap)


def _position(to: str | None, shift: int | None) -> "Position | None":
    """Where --to is; None where --shift says it."""
    from tailrace.cli.common import positions

    if (to is None) == (shift is None):
        raise Failure(f"where to? Give --to ({positions.GRAMMAR}) or else --shift N", ExitCode.USAGE)
    return None if to is None else positions.given(to, "--to")


def _chosen(here: _Here, name: str, topics: list[str] | None, commits: "Commits") -> "list[Partition]":
    from tailrace.cli.common.offsets import partitions_of
    from tailrace.cli.common.selection import require
    from tailrace.cli.group.partitions import Choice

    if topics:
        choice = Choice(topics, "--topic")
        require(choice.topics, here.metadata.topics, here.bootstrap)
        return choice.of(partitions_of(here.metadata, sorted(choice.topics)), "there is no partition")
    chosen = sorted(_existing(here, commits))
    if not chosen:
        hint = "--topic says where it is to begin"
        raise Failure(f"group {name} has committed nothing that could be moved; {hint}", ExitCode.REFUSED)
    return chosen


def _existing(here: _Here, commits: "Commits") -> "Commits":
    """Those of topics that are still there."""
    from tailrace.cli.common import offsets

    there = offsets.existing(commits, here.metadata)
    for partition in sorted(commits.keys() - set(there)):
        output.warn(f"{partition} is left out: it is not there any more")
    return {partition: commits[partition] for partition in there}


def _reset(here: _Here, name: str, plan: "Plan", *, yes: bool, dry_run: bool) -> None:
    from tailrace.cli.group import reset as resetting

    commits = resetting.commits_of(plan)
    if not commits:
        print(f"group {name} stays as it is")
        return
    effect = f"{output.plural(len(commits), 'partition')}: {resetting.effect(plan.values())}"
    if dry_run:
        print(f"would reset {name} in {effect}")
        return
    if not yes:
        output.confirm(f"Reset {name} in {effect}?")
    here.groups.commit(name, commits)
    print(f"reset {name} in {effect}")


def _require_free(here: _Here, name: str) -> None:
    from tailrace.cli.group import groups

    groups.require_no_members(here.groups.described([name])[name], "nothing was copied")
    if commits := here.groups.committed([name])[name]:
        raise Failure(
            f"group {name} is there, with {output.plural(len(commits), 'offset')}: nothing was copied\n"
            f"  choose another name, or `tailrace group delete {name}` first",
            ExitCode.REFUSED,
        )


def _print(commits: "Commits") -> None:
    from tailrace.cli.group import view as group_view

    if commits:
        output.draw(group_view.commits(commits), output.console(markup=False))
