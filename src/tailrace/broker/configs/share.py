"""The configs of a share group, typed: what its membership and its queue work with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.configs.durations import EARLIEST, duration_ms
from tailrace.broker.configs.groups import DEAD_LETTER_TOPIC, GroupValues

if TYPE_CHECKING:
    from tailrace.broker.configs.registry import BrokerConfigs


class OffsetReset(NamedTuple):
    """Where a group begins a partition that it has not read before: at the end, unless one of these is set."""

    from_earliest: bool = False
    age_ms: int | None = None  # at the first record that is not older


class RetryDelay(NamedTuple):
    """How long a record waits before it is delivered again: `delay_ms * multiplier ** (attempts - 1)`, at most
    `delay_ms_max`, longer or shorter by up to the share `jitter`.
    """

    delay_ms: int = 0
    multiplier: float = 2.0
    delay_ms_max: int = 600_000
    jitter: float = 0.2


class ShareSettings(NamedTuple):
    # Of the membership
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    size_max: int = 200
    # Of the queue
    lock_ms: int = 30_000
    lock_total_ms_max: int = 43_200_000
    attempts_max: int = 5  # share.delivery.count.limit
    locks_max: int = 2_000  # share.partition.max.record.locks
    parked_max: int = 1_000_000
    offset_reset: OffsetReset = OffsetReset()
    reads_committed: bool = False
    renews: bool = True
    orders_by_key: bool = False
    retry: RetryDelay = RetryDelay()
    dead_letter_topic: str | None = None
    copies_dead_letters: bool = True  # key, value and headers of the record, beside the headers of a dead letter


def share_settings(overrides: Mapping[str, str], configs: "BrokerConfigs") -> ShareSettings:
    """Returns the configs that apply to a share group with these values of its own."""
    own = GroupValues(overrides, configs)
    return ShareSettings(
        session_timeout_ms=own.number("share.session.timeout.ms"),
        heartbeat_interval_ms=own.number("share.heartbeat.interval.ms"),
        assignment_interval_ms=own.number("share.assignment.interval.ms"),
        size_max=configs.number("group.share.max.size"),
        lock_ms=own.number("share.record.lock.duration.ms"),
        lock_total_ms_max=own.number("tailrace.share.lock.max.total.ms"),
        attempts_max=own.number("share.delivery.count.limit"),
        locks_max=own.number("share.partition.max.record.locks"),
        parked_max=own.number("tailrace.share.parked.max"),
        offset_reset=_offset_reset(own.text("share.auto.offset.reset")),
        reads_committed=own.text("share.isolation.level") == "read_committed",
        renews=own.flag("share.renew.acknowledge.enable"),
        orders_by_key=own.text("tailrace.share.order") == "key",
        retry=_retry_delay(own),
        dead_letter_topic=own.text(DEAD_LETTER_TOPIC) or None,
        copies_dead_letters=own.flag("errors.deadletterqueue.copy.record.enable"),
    )


def _offset_reset(text: str) -> OffsetReset:
    return OffsetReset(text == EARLIEST, duration_ms(text))


def _retry_delay(own: GroupValues) -> RetryDelay:
    return RetryDelay(
        delay_ms=own.number("tailrace.share.retry.delay.ms"),
        multiplier=own.ratio("tailrace.share.retry.multiplier"),
        delay_ms_max=own.number("tailrace.share.retry.delay.max.ms"),
        jitter=own.ratio("tailrace.share.retry.jitter"),
    )
