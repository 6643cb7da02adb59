"""`tailrace lag --losses`: what groups have lost, from the loss ledger."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.cli.common import output
from tailrace.cli.lag.source import require_group

if TYPE_CHECKING:
    from tailrace.facts.losses import Loss
    from tailrace.monitor.views import View

REASONS = {
    "age": "older than retention.ms",
    "size": "log over retention.bytes",
    "budget": "disk budget reached",
    "delete_records": "deleted by a client",
    "hold_cap": "limit of the hold reached",
    "hold_expired": "hold had expired",
    "reset_forward": "group moved forward",
    "group_deleted": "group deleted",
    "topic_deleted": "topic deleted",
    "expired": "expired in a queue",
    "purged": "queue purged",
}


def show_losses(
    view: "View", group: str | None, topics: Sequence[str], since_ms: int, bootstrap: str, *, as_json: bool
) -> None:
    from tailrace.monitor.figures.losses import shown

    found = view.losses()
    if group is not None:
        require_group(group, any(loss.group == group for loss in found) or group in view.group_names(), bootstrap)
    found = [
        loss
        for loss in found
        if (group is None or loss.group == group) and (not topics or loss.topic in topics) and loss.at >= since_ms
    ]
    if as_json:
        print(json.dumps({"losses": [shown(loss) for loss in found]}, indent=2))
    elif found:
        _draw(found)
    else:
        print("No lost messages are recorded.")


def _draw(losses: "list[Loss]") -> None:
    drawn = output.table("GROUP", "LOST FROM", "MESSAGES", "WHEN", "WHY", texts=("LOST FROM", "WHEN", "WHY"))
    for loss in losses:
        count = ("" if loss.exact else "≤ ") + output.number(loss.records)
        where = f"{loss.topic}-{loss.partition} @{loss.first}"
        why = REASONS.get(loss.reason or "", str(loss.reason))
        by = f" ({output.short(loss.client_id.encode(), 20)})" if loss.client_id else ""
        drawn.add_row(output.short(loss.group.encode(), 30), where, count, output.minute(loss.at), why + by)
    output.draw(drawn, output.console(markup=False))
    total = output.plural(sum(loss.records for loss in losses), "message")
    at_most = "" if all(loss.exact for loss in losses) else "at most "
    print(f"{at_most}{total} lost, by {output.plural(len({loss.group for loss in losses}), 'group')}")
