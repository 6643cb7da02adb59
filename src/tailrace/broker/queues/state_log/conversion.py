"""Updates of a share partition as records of the state log, and back."""

from typing import TYPE_CHECKING, Any

from tailrace.broker.queues.partition.states import DeadLetterPosition, RecordState, StateRange, StateUpdate
from tailrace.broker.queues.state_log.records import (
    UNKNOWN_OFFSET,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
)

if TYPE_CHECKING:
    from tailrace.broker.queues.queue_partition import QueuePartition


def value_of(update: StateUpdate, epoch: int, leader_epoch: int) -> ShareUpdateValue:
    return ShareUpdateValue(
        snapshot_epoch=epoch,
        leader_epoch=leader_epoch,
        start_offset=update.start_offset,
        state_batches=_batches_of(update),
        delivery_complete_count=update.complete_count,
        **_dead_letters_of(update),
    )


def snapshot_of(
    queue: "QueuePartition",
    update: StateUpdate,
    epoch: int,
    leader_epoch: int,
    now_ms: int,
    *,
    is_partial: bool = False,
) -> ShareSnapshotValue:
    return ShareSnapshotValue(
        snapshot_epoch=epoch,
        state_epoch=queue.epoch,
        leader_epoch=leader_epoch,
        start_offset=update.start_offset,
        create_timestamp=queue.created_ms,
        write_timestamp=now_ms,
        state_batches=_batches_of(update),
        delivery_complete_count=update.complete_count,
        is_partial=is_partial,
        **_dead_letters_of(update),
    )


def _dead_letters_of(update: StateUpdate) -> dict[str, Any]:
    if update.dead_letters is None:
        return {}
    topic_id, partition, offset = update.dead_letters
    return {"dead_letter_topic_id": topic_id, "dead_letter_partition": partition, "dead_letter_offset": offset}


def _batches_of(update: StateUpdate) -> list[StateBatch]:
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in update.ranges
    ]


def update_of(value: ShareUpdateValue | ShareSnapshotValue) -> StateUpdate:
    """Raises ValueError for states that no record has."""
    ranges = [
        StateRange(one.first_offset, one.last_offset, RecordState(one.delivery_state), max(0, one.delivery_count))
        for one in value.state_batches
    ]
    dead_letters = None
    if value.dead_letter_offset != UNKNOWN_OFFSET:
        dead_letters = DeadLetterPosition(
            value.dead_letter_topic_id, value.dead_letter_partition, value.dead_letter_offset
        )
    return StateUpdate(value.start_offset, ranges, value.delivery_complete_count, dead_letters)
