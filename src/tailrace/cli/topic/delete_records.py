"""`tailrace topic delete-records`: makes partitions begin at a later offset. Shows the plan, and asks first."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.common import connection, output
from tailrace.cli.common.connection import DEFAULT, REQUEST_SECONDS, Bootstrap, ClientConfig, Connection
from tailrace.cli.common.options import AsJson, DryRun, Yes
from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.cli.common.client import AdminClient
    from tailrace.cli.common.topics.offsets import Partition
    from tailrace.cli.topic.deletion import Deletion

Chosen = Annotated[
    list[str], typer.Argument(metavar="TOPIC[:P,P…]", autocompletion=connection.complete_topics, show_default=False)
]
Before = Annotated[
    str, typer.Option("--before", metavar="OFFSET|TIME", help="Also latest, and last:N to keep N of each partition.")
]


def delete_records(
    chosen: Chosen,
    before: Before,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Delete the oldest messages of topics, up to an offset or a time. Shows what goes, and asks first.

    \b
    tailrace topic delete-records orders --before -7d
    tailrace topic delete-records orders:0 --before 4711 --dry-run
    tailrace topic delete-records orders:0,2 payments --before latest --yes

    OFFSET and TIME are what `tailrace tail --from` takes. The message at OFFSET stays. With a TIME, all messages
    before the first one that is not older go. This cannot be undone.
    """
    from tailrace.cli.common.topics.positions import given
    from tailrace.cli.topic import deletion

    position = given(before, "--before")
    brokers = Connection(bootstrap, client_config)
    admin = brokers.admin()
    plan = deletion.plan(brokers, admin, chosen, position)
    if not as_json:
        output.draw(deletion.table(plan), output.console(markup=False))
    wanted = [one for one in plan if one.messages]
    if not dry_run and wanted and not yes:
        total = output.plural(sum(one.messages for one in wanted), "message")
        output.confirm(f"Delete {total}? This cannot be undone.")
    starts = {} if dry_run else _delete(brokers, admin, wanted)
    if as_json:
        print(json.dumps({"dry_run": dry_run, "partitions": [one.row() for one in plan]}, indent=2))
    elif dry_run or not wanted:
        print("nothing was deleted" if wanted else "nothing is to be deleted", file=sys.stderr)
    for partition, start in starts.items() if not as_json else ():
        print(f"{partition} begins at offset {start}")


def _delete(brokers: Connection, admin: "AdminClient", wanted: "list[Deletion]") -> "dict[Partition, int]":
    """Deletes records, and returns the new start offsets."""
    from tailrace.cli.common.client import TopicPartition

    if not wanted:
        return {}
    asked = [TopicPartition(*one.partition, one.before) for one in wanted]
    futures = admin.delete_records(asked, request_timeout=REQUEST_SECONDS, operation_timeout=REQUEST_SECONDS)
    by_place = {(place.topic, place.partition): future for place, future in futures.items()}
    return {one.partition: _new_start(brokers, by_place[one.partition], one.partition) for one in wanted}


def _new_start(brokers: Connection, future: Any, partition: "Partition") -> int:
    """What DeleteRecords brought, which has no words for a refusal."""
    from tailrace.cli.common.client import KafkaError, KafkaException

    reasons = {
        KafkaError.POLICY_VIOLATION: f"cleanup.policy of {partition.topic} is without `delete`",
        KafkaError.TOPIC_EXCEPTION: f"{partition.topic} is an internal topic",
    }
    try:
        start: int = future.result().low_watermark
    except KafkaException as error:
        failed = f"{partition} keeps its messages"
        if reason := reasons.get(error.args[0].code()):
            raise Failure(f"{failed}: {reason}", ExitCode.REFUSED) from None
        raise brokers.failure(error.args[0], failed) from None
    return start
