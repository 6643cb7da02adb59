"""`tailrace group`: lists, shows, resets, copies and deletes consumer groups; `settings` changes their configs.

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
from tailrace.cli.group import settings

if TYPE_CHECKING:
    from tailrace.cli.common.client import AdminClient, ClusterMetadata
    from tailrace.cli.common.topics.offsets import Offsets, Partition
    from tailrace.cli.common.topics.positions import Position
    from tailrace.cli.group.groups import Commits, Groups
    from tailrace.cli.group.history import History
    from tailrace.cli.group.reset import Plan

app = typer.Typer(
    help="List and show groups; move, copy and delete what they have committed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_STATES = ("stable", "empty", "rebalancing", "dead")
_KINDS = ("classic", "consumer", "share", "simple")

Name = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=connection.complete_groups)]
Names = Annotated[list[str], typer.Argument(metavar="GROUP", autocompletion=connection.complete_groups)]
States = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help=f"Only such: {', '.join(_STATES)}. May be repeated."),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", metavar="KIND", help=f"Only such: {', '.join(_KINDS)}. May be repeated."),
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
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Where it stood then: 2026-11-15T10:00, 10:00, yesterday, -2h."),
]


@app.command("list")
def list_(
    states: States = None,
    kinds: Kinds = None,
    lagging: Annotated[bool, typer.Option("--lagging", help="Only those that have messages to read.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """List groups, with how many messages they have still to read.

    \b
    tailrace group list
    tailrace group list --lagging --state empty    behind, and without members
    tailrace group list --kind classic             those of the older protocol
    tailrace group list --json | jq -r '.[].name'

    \b
    STATE  stable, rebalancing (members come or go), empty (no members), dead
    KIND   classic or consumer, (the protocol); simple: offsets, but never members
    LAG    by offsets, as `group show` counts it; - where nothing was committed
    """
    from tailrace.cli.group import view as group_view

    if unknown := set(states or ()) - set(_STATES):
        raise Failure(f"--state takes {', '.join(_STATES)}, not {min(unknown)!r}", ExitCode.USAGE)
    if unknown := set(kinds or ()) - set(_KINDS):
        raise Failure(f"--kind takes {', '.join(_KINDS)}, not {min(unknown)!r}", ExitCode.USAGE)
    here = _reach(bootstrap, client_config)
    rows = group_view.rows(here.groups, here.offsets, here.metadata, set(states or ()), set(kinds or ()))
    rows = [row for row in rows if row["lag"] or not lagging]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        output.draw(group_view.table(rows), output.console(markup=False))
    elif states or kinds or lagging:
        output.warn("there are no such groups")
    else:
        output.warn(f"there are no groups at {bootstrap} yet; `tailrace tail TOPIC --group NAME` makes one")


@app.command()
def show(
    name: Name,
    at: At = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Show one group: its members, what they are assigned, and how far they are.

    \b
    tailrace group show billing
    tailrace group show billing --at -2h          two hours ago
    tailrace group show billing --json | jq '.partitions[] | select(.lag > 0)'

    LAG is what is between the committed offset and the end of the log. What compaction removed, and what marks the
    end of transactions, counts too. A partition is stuck if messages wait, and nothing was committed, for ten minutes.

    --at needs a tailrace broker, which records the positions of groups once a minute and keeps them for a day
    (tailrace.group.history.ms). Exit code 4: no position that old is kept.
    """
    from tailrace.cli.group import epochs, stuck
    from tailrace.cli.group import view as group_view

    if at is not None:
        _show_past(_reach(bootstrap, client_config), name, at, as_json=as_json)
        return
    here = _reach(bootstrap, client_config)
    found, commits = here.groups.require([name])[name], here.groups.committed([name])[name]
    shown = group_view.details(here.offsets, here.metadata, found, commits)
    epochs.add(shown, here.brokers)
    stuck.add(shown["partitions"], here.brokers, here.history, name, commits)
    if as_json:
        print(json.dumps(shown, indent=2))
    else:
        group_view.show(shown, output.console(markup=False))


@app.command()
def reset(
    name: Name,
    to: To = None,
    shift: Shift = None,
    at: At = None,
    topics: Topics = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Move a group to another place in its topics. Shows from where to where, and asks first.

    \b
    tailrace group reset billing --to earliest --dry-run         all again?
    tailrace group reset billing --to -2h                        two hours again
    tailrace group reset billing --to yesterday --topic orders   one topic
    tailrace group reset billing --to 4711 --topic orders:0      one partition
    tailrace group reset billing --shift 1 --topic orders:0      past one message
    tailrace group reset billing --shift -100                    a hundred again
    tailrace group reset billing --at yesterday                  as it stood
    tailrace group reset new --to latest --topic orders --yes    a new group

    Without --topic, it moves wherever it has committed an offset. Refused while it has members. WHERE is what
    `tailrace tail --from` takes; what would be outside of a log becomes the log's start or end, and that is said.
    """
    from tailrace.cli.group import backlog, groups, history
    from tailrace.cli.group import reset as resetting

    position = _position(to, shift, at)
    moment = None if at is None else history.moment(at)
    here = _reach(bootstrap, client_config)
    group = here.groups.described([name])[name] if topics or at else here.groups.require([name])[name]
    commits = here.groups.committed([name])[name]
    held = None if moment is None else here.history.held(name, moment)
    where = groups.standings(here.offsets, _chosen(here, name, topics, commits if held is None else held), commits)
    if held is not None:
        plan = resetting.to_offsets(where, held)
    elif position is None:
        plan = resetting.shifted(where, shift or 0)
    else:
        plan = resetting.to_position(here.offsets, where, position)
    if not as_json:
        output.draw(resetting.table(plan), output.console(markup=False))
    for line in backlog.warnings(here.brokers, here.admin, here.metadata, name, plan):
        output.warn(line)
    groups.require_no_members(group, "nothing was reset")
    _reset(here, name, plan, yes=yes, dry_run=dry_run, as_json=as_json)


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", autocompletion=connection.complete_groups)],
    target: Annotated[str, typer.Argument(metavar="TO")],
    at: At = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Copy what a group has committed to a new name, which goes on from there by itself.

    \b
    tailrace group copy billing billing-test
    tailrace group copy billing billing-test --dry-run
    tailrace group copy billing billing-again --at 10:00   as it stood then

    The first may go on working meanwhile; with --at (see `group show`) it may have been deleted. The second must not
    be there: nothing is overwritten.
    """
    from tailrace.cli.group import history

    if source == target:
        raise Failure("a group cannot be copied to itself", ExitCode.USAGE)
    moment = None if at is None else history.moment(at)
    here = _reach(bootstrap, client_config)
    if moment is None:
        here.groups.require([source])
    _require_free(here, target)
    found = here.groups.committed([source])[source] if moment is None else here.history.held(source, moment)
    commits = _existing(here, found)
    if not commits:
        raise Failure(f"group {source} has committed nothing that could be copied", ExitCode.REFUSED)
    if not dry_run:
        here.groups.commit(target, commits)
    if as_json:
        from tailrace.cli.group import view as group_view

        copied = {"from": source, "to": target, "dry_run": dry_run, "offsets": group_view.commits_as_json(commits)}
        print(json.dumps(copied, indent=2))
        return
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
    tailrace group delete billing --offsets orders        its offsets in one topic
    tailrace group delete billing --offsets orders:0,1    in two partitions

    Refused while a group has members. No message is deleted; each offset is printed, so that it can be set again.
    """
    from tailrace.cli.common.topics.partition_choice import Choice
    from tailrace.cli.group import delete as deleting
    from tailrace.cli.group import groups

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


app.command("set")(settings.set_)
app.command("ls", hidden=True)(list_)
app.command("rm", hidden=True)(delete)


class _Here(NamedTuple):
    """Brokers that answer, and what can be asked."""

    brokers: Connection
    admin: "AdminClient"
    groups: "Groups"
    offsets: "Offsets"
    history: "History"
    metadata: "ClusterMetadata"
    bootstrap: str


def _reach(bootstrap: str, client_config: list[str] | None) -> _Here:
    from tailrace.cli.common.topics.offsets import Offsets
    from tailrace.cli.group.groups import Groups
    from tailrace.cli.group.history import History

    brokers = Connection(bootstrap, client_config)
    admin = brokers.admin()
    metadata = brokers.metadata(admin)
    groups, offsets, history = Groups(brokers, admin), Offsets(brokers, admin), History(brokers, metadata)
    return _Here(brokers, admin, groups, offsets, history, metadata, bootstrap)


def _show_past(here: _Here, name: str, at: str, *, as_json: bool) -> None:
    from tailrace.cli.group import history

    moment = history.moment(at)
    held = here.history.held(name, moment)
    if as_json:
        rows = [{"topic": at.topic, "partition": at.number, "committed": one.offset} for at, one in held.items()]
        print(json.dumps({"name": name, "at": history.shown(moment), "partitions": rows}, indent=2))
        return
    offsets = output.plural(len(held), "offset") if held else "nothing committed"
    print(f"{name} at {history.shown(moment)}: {offsets}")
    _print(held)


def _position(to: str | None, shift: int | None, at: str | None) -> "Position | None":
    """Returns the position in --to; None if --shift or --at is given."""
    from tailrace.cli.common.topics import positions

    if sum(option is not None for option in (to, shift, at)) != 1:
        raise Failure(f"where to? Give --to ({positions.GRAMMAR}) or else --shift N or --at TIME", ExitCode.USAGE)
    return None if to is None else positions.given(to, "--to")


def _chosen(here: _Here, name: str, topics: list[str] | None, commits: "Commits") -> "list[Partition]":
    from tailrace.cli.common.topics.offsets import partitions_of
    from tailrace.cli.common.topics.partition_choice import Choice
    from tailrace.cli.common.topics.selection import require

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
    from tailrace.cli.common.topics import offsets

    there = offsets.existing(commits, here.metadata)
    for partition in sorted(commits.keys() - set(there)):
        output.warn(f"{partition} is left out: it is not there any more")
    return {partition: commits[partition] for partition in there}


def _reset(here: _Here, name: str, plan: "Plan", *, yes: bool, dry_run: bool, as_json: bool) -> None:
    from tailrace.cli.group import reset as resetting

    commits = resetting.commits_of(plan)
    effect = f"{output.plural(len(commits), 'partition')}: {resetting.effect(plan.values())}"
    if commits and not dry_run:
        if not yes:
            output.confirm(f"Reset {name} in {effect}?")
        here.groups.commit(name, commits)
    if as_json:
        print(json.dumps({"group": name, "dry_run": dry_run, "partitions": resetting.as_json(plan)}, indent=2))
    elif not commits:
        print(f"group {name} stays as it is")
    else:
        print(f"{'would reset' if dry_run else 'reset'} {name} in {effect}")


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
