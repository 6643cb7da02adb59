"""Finds commits that move a group past records that it has not read.

A fetch does not name a group, so this is inferred from what clients do (`core/clients`), and noted as not exact:

    latest     a client was sent OFFSET_OUT_OF_RANGE, has asked for the latest offset, and commits behind it
    forward    a client that is no member of the group commits further on, and fetches nothing of the partition

Offsets in a transaction come from a producer, a client of its own: `latest` goes by the client of the member that it
names, and `forward` does not apply. The skip is noted with the commit, whatever becomes of the transaction.

A member that seeks, and goes on from there, cannot be told from one that has read.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import Actor
from tailrace.broker.core.api import Call
from tailrace.broker.core.partition import Partition
from tailrace.facts.losses import LossReason

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.groups.coordinator import OffsetCommit


def note_resets(
    group: str, commits: Sequence["OffsetCommit"], call: Call, broker: "Broker", *, is_member: bool
) -> bool:
    """Notes in the loss ledger what these commits skip. Called before the commits of the group
    change. Returns whether there was anything.
    """
    if call.connection is None or (is_member and not broker.clients.resets):
        return False
    skips = list(_skips(group, commits, call, broker, is_member=is_member))
    if skips:
        broker.ledger.note_skips(group, skips, LossReason.RESET_FORWARD, call.now_ms, Actor(call.client_id))
    return bool(skips)


def _skips(
    group: str, commits: Sequence["OffsetCommit"], call: Call, broker: "Broker", *, is_member: bool
) -> Iterator[tuple[Partition, int, int]]:
    """Yields partitions, and from where to where records are skipped."""
    clients = broker.clients
    for topic, index, value in commits:
        before, partition = broker.groups.offsets.get(group, topic, index), broker.partition(topic, index)
        if before is None or partition is None or value.offset <= before.offset:
            continue
        place = call.client_id or "", partition
        reset = clients.resets.get(place)
        if reset is not None and before.offset <= reset.fetched and value.offset >= reset.latest:
            del clients.resets[place]
            yield partition, before.offset, reset.latest
        elif not is_member and not clients.is_fetching(call.client_id, partition):
            yield partition, before.offset, min(value.offset, partition.high_watermark)
