"""`tailrace topic`: lists, shows, creates, alters and deletes topics. Works against any Kafka.

Every change is checked by the broker first where it offers to, can be shown instead of made with --dry-run, and is
told once it is made. `view` has the output.
"""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tailrace.cli.common import connection, output, units
from tailrace.cli.common.connection import DEFAULT, REQUEST_SECONDS, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.options import AsJson, DryRun, Yes
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.topic.delete_records import delete_records

if TYPE_CHECKING:
    from tailrace.cli.common.client import AdminClient, ConfigEntry, NewTopic

app = typer.Typer(help="List, show, make, change and delete topics.", no_args_is_help=True, rich_markup_mode=None)

_PARTITIONS_MAX = 100_000  # librdkafka takes no more

Name = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=connection.complete_topics)]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC", autocompletion=connection.complete_topics)]


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--partitions",
            metavar="N",
            min=1,
            max=_PARTITIONS_MAX,
            help="As many as the broker's default, if not given.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", metavar="N", min=1, help="The broker's default, if not given."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="Such as retention.ms=7d. May be repeated."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is no error.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Make topics.

    \b
    tailrace topic create orders
    tailrace topic create orders payments -p 3
    tailrace topic create prices --config cleanup.policy=compact
    tailrace topic create clicks --config retention.ms=12h

    Times and sizes may have units: 90s, 12h, 7d; 64MiB, 1.5GB.
    """
    from tailrace.cli.common.client import NewTopic

    settings = units.converted(connection.pairs(config, "--config"))
    brokers = Connection(bootstrap, client_config)
    admin = brokers.admin()
    there = brokers.metadata(admin).topics
    shown = _Created(as_json, dry_run)
    for name in [name for name in dict.fromkeys(names) if name in there and if_not_exists]:
        shown.add(name, len(there[name].partitions), exists=True)
    wanted = [name for name in dict.fromkeys(names) if not (name in there and if_not_exists)]
    replicas = replication_factor or -1
    topics = [NewTopic(name, partitions or -1, replicas, config=settings) for name in wanted]
    try:
        _create(brokers, admin, topics, shown)
    finally:
        shown.end()


@app.command("list")
def list_(
    pattern: Annotated[
        str | None, typer.Argument(metavar="PATTERN", help="A regular expression that matches the whole name.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics (__…), too.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """List topics, with how many messages they have.

    \b
    tailrace topic list
    tailrace topic list 'orders.*'
    tailrace topic list --json | jq -r '.[].name'

    Messages are counted by offsets: what compaction removed, and what marks the end of transactions, counts too.
    """
    from tailrace.cli.common.topics.selection import Selection, is_internal
    from tailrace.cli.topic import view as topic_view

    selection = Selection([pattern or ".*"])
    brokers = Connection(bootstrap, client_config)
    admin = brokers.admin()
    metadata = brokers.metadata(admin)
    found = selection.of(metadata.topics)
    if internal:
        found += [name for name in sorted(metadata.topics) if is_internal(name) and name not in found and not pattern]
    rows = topic_view.rows(brokers, admin, metadata, found)
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        output.console().print(topic_view.table(rows))
    elif pattern:
        output.warn(f"no topic matches {pattern!r}{selection.hint()}")
    else:
        output.warn(f"there are no topics at {bootstrap} yet; `tailrace topic create NAME` makes one")


@app.command()
def show(
    name: Name,
    all_configs: Annotated[bool, typer.Option("--all-configs", help="Those that are at their defaults, too.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Show one topic: its partitions, where they begin and end, and how it is configured.

    \b
    tailrace topic show orders
    tailrace topic show orders --all-configs
    tailrace topic show orders --json | jq '.partitions[].end_offset'
    """
    from tailrace.cli.topic import view as topic_view

    brokers, admin = _reach(bootstrap, client_config, [name])
    shown = topic_view.details(brokers, admin, name, all_configs=all_configs)
    if as_json:
        print(json.dumps(shown, indent=2))
    else:
        topic_view.show(shown, output.console())


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option("-p", "--partitions", metavar="N", min=1, max=_PARTITIONS_MAX, help="More than there are."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "--config", metavar="KEY=VALUE", help="Such as retention.ms=7d. May be repeated."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default. May be repeated.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Change a topic: more partitions, other settings.

    \b
    tailrace topic alter orders --partitions 6
    tailrace topic alter orders --set retention.ms=1d --unset max.message.bytes
    tailrace topic alter orders --set cleanup.policy=compact --dry-run

    With more partitions, messages with the same key may go to another partition than before. There is no way back.
    """
    changed = units.converted(connection.pairs(settings, "--set"))
    if partitions is None and not changed and not unset:
        raise Failure("nothing to change: give --partitions, --set or --unset", ExitCode.USAGE)
    if twice := changed.keys() & set(unset or ()):
        raise Failure(f"{min(twice)} is both in --set and in --unset", ExitCode.USAGE)
    brokers, admin = _reach(bootstrap, client_config, [name])
    entries = _entries(changed, unset or [])
    plan = _plan(brokers, admin, name, partitions, entries)
    _alter(brokers, admin, name, partitions, entries, validate_only=True)
    if not dry_run:
        _alter(brokers, admin, name, partitions, entries, validate_only=False)
    if as_json:
        changes = [{"name": change.name, "from": change.before, "to": change.after} for change in plan]
        print(json.dumps({"name": name, "dry_run": dry_run, "changes": changes}, indent=2))
        return
    print(f"{'would change' if dry_run else 'changed'} {name}")
    for change in plan:
        print(f"  {change.name}: {change.before} → {change.after}")


@app.command()
def delete(
    names: Names,
    yes: Yes = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Delete topics, with all their messages. Asks first.

    \b
    tailrace topic delete orders
    tailrace topic delete orders payments --yes
    """
    from tailrace.cli.topic import view as topic_view

    names = list(dict.fromkeys(names))
    brokers, admin = _reach(bootstrap, client_config, names)
    verb = "would delete" if dry_run else "to be deleted:"
    for row in topic_view.rows(brokers, admin, brokers.metadata(admin), names):
        counts = output.plural(row["partitions"], "partition"), output.plural(row["messages"], "message")
        print(f"{verb} {row['name']}: {counts[0]}, {counts[1]}", file=sys.stdout if dry_run else sys.stderr)
    if dry_run:
        return
    if not yes:
        output.confirm(f"Delete {output.plural(len(names), 'topic')}? This cannot be undone.")
    futures = admin.delete_topics(names, request_timeout=REQUEST_SECONDS)
    for name in names:
        brokers.result(futures[name], f"{name} is not deleted")
        print(f"deleted {name}")
    connection.until(lambda: not set(names) & brokers.metadata(admin).topics.keys())


app.command("delete-records")(delete_records)
app.command("ls", hidden=True)(list_)
app.command("rm", hidden=True)(delete)


def _reach(bootstrap: str, client_config: list[str] | None, names: list[str]) -> "tuple[Connection, AdminClient]":
    """A client for brokers that know all the names."""
    from tailrace.cli.common.topics.selection import require

    brokers = Connection(bootstrap, client_config)
    admin = brokers.admin()
    require(names, brokers.metadata(admin).topics, bootstrap)
    return brokers, admin


class _Created:
    """Prints the result for each topic: a line as soon as it is known, or one JSON list at the end."""

    def __init__(self, as_json: bool, dry_run: bool) -> None:
        self.dry_run = dry_run
        self._as_json = as_json
        self._rows: list[dict[str, Any]] = []

    def add(self, name: str, partitions: int | None, *, exists: bool = False) -> None:
        """`partitions` None: as many as the broker's default."""
        if self._as_json:
            created = not exists and not self.dry_run
            self._rows.append({"name": name, "partitions": partitions, "created": created, "exists": exists})
            return
        default = "as many partitions as the broker's default"
        count = default if partitions is None else output.plural(partitions, "partition")
        if exists:
            print(f"{name} exists already, with {count}")
        else:
            print(f"{'would create' if self.dry_run else 'created'} {name} with {count}")

    def end(self) -> None:
        if self._as_json:
            print(json.dumps(self._rows, indent=2))


def _create(brokers: Connection, admin: "AdminClient", topics: "list[NewTopic]", shown: _Created) -> None:
    if not topics:
        return
    futures = admin.create_topics(topics, validate_only=shown.dry_run, request_timeout=REQUEST_SECONDS)
    failures: list[Failure] = []
    for topic in topics:
        try:
            brokers.result(futures[topic.topic], f"{topic.topic} is not created")
        except Failure as failure:
            failures.append(failure)
            continue
        if shown.dry_run:
            shown.add(topic.topic, None if topic.num_partitions == -1 else topic.num_partitions)
        else:
            shown.add(topic.topic, _count_once_there(brokers, admin, topic.topic))
    for other in failures[1:]:
        output.warn(str(other))
    if failures:
        raise failures[0]


def _count_once_there(brokers: Connection, admin: "AdminClient", name: str) -> int:
    """Returns the number of partitions of a new topic, once brokers know it and its leaders: the user most likely uses
    it next.
    """

    def is_there() -> bool:
        topic = brokers.metadata(admin).topics.get(name)
        return bool(topic and topic.partitions and all(part.leader >= 0 for part in topic.partitions.values()))

    connection.until(is_there)
    topic = brokers.metadata(admin).topics.get(name)
    return len(topic.partitions) if topic else 0


def _entries(changed: dict[str, str], unset: list[str]) -> "list[ConfigEntry]":
    from tailrace.cli.common.client import AlterConfigOpType, ConfigEntry

    return [
        *(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changed.items()),
        *(ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in dict.fromkeys(unset)),
    ]


class _Change(NamedTuple):
    """A setting, or `partitions`."""

    name: str
    before: str | int | None
    after: str | int | None


def _plan(
    brokers: Connection, admin: "AdminClient", name: str, partitions: int | None, entries: "list[ConfigEntry]"
) -> list[_Change]:
    """Returns the changes, each from one value to another."""
    from tailrace.cli.topic import view as topic_view

    plan = []
    if partitions is not None:
        count = len(brokers.metadata(admin).topics[name].partitions)
        if partitions <= count:
            message = f"{name} has {output.plural(count, 'partition')} already: there can be more, never fewer"
            raise Failure(message, ExitCode.REFUSED)
        plan.append(_Change("partitions", count, partitions))
    now = topic_view.configs(brokers, admin, name) if entries else {}
    for entry in entries:
        if entry.name not in now:
            from difflib import get_close_matches

            close = get_close_matches(entry.name, now, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; `tailrace topic show {name} --all-configs` lists all"
            raise Failure(f"topics have no setting {entry.name!r}{hint}", ExitCode.REFUSED)
        target = entry.value if entry.value is not None else topic_view.default_of(now[entry.name])
        plan.append(_Change(entry.name, now[entry.name].value, target))
    return plan


def _alter(
    brokers: Connection,
    admin: "AdminClient",
    name: str,
    partitions: int | None,
    entries: "list[ConfigEntry]",
    *,
    validate_only: bool,
) -> None:
    from tailrace.cli.common.client import ConfigResource, NewPartitions, ResourceType

    options = {"validate_only": validate_only, "request_timeout": REQUEST_SECONDS}
    if entries:
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        (future,) = admin.incremental_alter_configs([resource], **options).values()
        brokers.result(future, f"{name} is not changed")
    if partitions is not None:
        (future,) = admin.create_partitions([NewPartitions(name, partitions)], **options).values()
        brokers.result(future, f"{name} gets no partitions")
        if not validate_only:
            connection.until(lambda: len(brokers.metadata(admin).topics[name].partitions) >= partitions)
