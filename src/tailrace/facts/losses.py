"""The loss ledger, `__tailrace_losses`: records that were deleted, and the groups that had not read them.

Four kinds of records; their order in the topic counts:

    cut      one per deletion and partition: the range that is gone, and why
    missed   a group whose position a cut has passed: from its position to the end of that cut. Until the group commits
             again, all later cuts of the partition belong to what it misses. Without a reason: a group that has moved
             to before the start, and misses what earlier cuts have taken
    resumed  that group has committed again, or was deleted: what it has missed in all, from `first` to `last`. It has
             no reason of its own: the cuts have
    skipped  a group went forward over records without reading them, as far as the broker can tell; or records were
             deleted that a topic held for a group which has not committed yet. Of a share group, `records` are those
             between `first` and `last` that it has not finished

The key of a record is JSON, too: kind, group, topic id, partition and first offset. A `missed` record of a deletion has
the `last` and the `at` of its cut. It may come before the cut, in a note of thousands of groups; and if a crash has
interrupted that note, the cut does not come, nothing was deleted, and the record does not count.

"Read" means committed: records that a group has processed and not committed count as missed. `last` is inclusive, times
are milliseconds since 1970, and `exact` is false where fewer records than offsets may have been lost (compaction,
transactions) or where the broker only infers the loss.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from tailrace.facts import document
from tailrace.facts.document import UnreadableFact

VERSION = 1


class LossReason(StrEnum):
    AGE = "age"
    SIZE = "size"
    BUDGET = "budget"
    DELETE_RECORDS = "delete_records"
    HOLD_CAP = "hold_cap"
    HOLD_EXPIRED = "hold_expired"
    RESET_FORWARD = "reset_forward"
    GROUP_DELETED = "group_deleted"
    TOPIC_DELETED = "topic_deleted"
    EXPIRED = "expired"
    PURGED = "purged"


class LossKind(StrEnum):
    CUT = "cut"
    MISSED = "missed"
    RESUMED = "resumed"
    SKIPPED = "skipped"


class Loss(NamedTuple):
    """One record of the ledger. `group` is empty for a cut; `size`, `oldest` and `newest` are None if unknown. The
    records were written between `oldest`, the time of those before them, and `newest`.
    """

    kind: LossKind
    topic: str
    topic_id: str
    partition: int
    first: int
    last: int
    records: int
    exact: bool
    at: int
    reason: LossReason | None
    group: str = ""
    size: int | None = None
    oldest: int | None = None
    newest: int | None = None
    client_id: str | None = None
    user: str | None = None

    @property
    def key(self) -> bytes:
        parts: list[Any] = [self.group, self.topic_id, self.partition, self.first]
        return document.encode(VERSION, {"kind": self.kind, "of": parts})

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())


def decode(value: bytes) -> Loss:
    """Raises UnreadableFact."""
    fields = document.decode(value, VERSION)
    try:
        reason = LossReason(fields["reason"]) if fields["reason"] is not None else None
        return Loss(**{**fields, "kind": LossKind(fields["kind"]), "reason": reason})
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFact(f"not a record of the loss ledger: {error}") from None
