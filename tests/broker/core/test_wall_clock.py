"""A wall clock that jumps: nothing is forgotten or deleted because of it, until it is trusted again."""

from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.broker.core.wall_clock import JUMP_MS, PATIENCE_MS, WallClock
from tailrace.protocol.errors import ErrorCode

CHECKPOINT_MS = 60_000  # log.flush.offset.checkpoint.interval.ms, by default

SECOND = 1000
DAY_MS = 86_400_000


class Clocks:
    def __init__(self) -> None:
        self.wall = WallClock()
        self.now_ms = 1_800_000_000_000
        self.steady_ms = 5_000_000
        self.wall.tick(self.now_ms, self.steady_ms)

    def is_trusted_after(self, passed_ms: int, jump_ms: int = 0) -> bool:
        self.now_ms += passed_ms + jump_ms
        self.steady_ms += passed_ms
        self.wall.tick(self.now_ms, self.steady_ms)
        return self.wall.is_trusted


def test_a_clock_is_trusted_from_the_first_tick_and_after_any_pause_between_ticks() -> None:
    clocks = Clocks()
    assert clocks.wall.is_trusted
    assert clocks.is_trusted_after(10 * DAY_MS)


def test_a_step_of_up_to_an_hour_is_no_jump() -> None:
    clocks = Clocks()
    assert clocks.is_trusted_after(SECOND, JUMP_MS)
    assert clocks.is_trusted_after(SECOND, JUMP_MS)


def test_a_clock_that_jumps_ahead_is_trusted_again_after_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    assert not clocks.is_trusted_after(SECOND, DAY_MS)
    assert not clocks.is_trusted_after(PATIENCE_MS - 1)
    assert clocks.is_trusted_after(1)
    assert clocks.is_trusted_after(SECOND)
    assert caplog.messages == [
        "the clock has jumped ahead by 86400 s: no records are deleted by age for 600 s. Set it back if it is wrong"
    ]


def test_a_clock_set_back_is_trusted_at_once_unless_it_is_still_ahead() -> None:
    clocks = Clocks()
    assert not clocks.is_trusted_after(SECOND, DAY_MS)
    assert not clocks.is_trusted_after(SECOND, -SECOND)
    assert clocks.is_trusted_after(SECOND, SECOND - DAY_MS)


def test_another_jump_starts_the_ten_minutes_again_and_counts_from_before_the_first() -> None:
    clocks = Clocks()
    assert not clocks.is_trusted_after(SECOND, DAY_MS)
    assert not clocks.is_trusted_after(PATIENCE_MS - 1, DAY_MS)
    assert not clocks.is_trusted_after(PATIENCE_MS - 1)
    assert not clocks.is_trusted_after(0, -DAY_MS), "it is still a day ahead"
    assert clocks.is_trusted_after(0, -DAY_MS)


def test_a_clock_that_is_behind_and_put_right_is_trusted_after_ten_minutes() -> None:
    clocks = Clocks()
    assert clocks.is_trusted_after(SECOND, -DAY_MS)
    assert not clocks.is_trusted_after(SECOND, DAY_MS)
    assert clocks.is_trusted_after(PATIENCE_MS)


# Idempotent producers


def retry(broker: LocalBroker, sequence: int) -> tuple[int, int]:
    answer = broker.produce(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence)
    return int(answer.error_code), int(answer.base_offset)


def checkpoint(broker: LocalBroker) -> None:
    """Somebody else's append, so that there is something to save, and a checkpoint, which forgets idle producers."""
    broker.produce(b"of another")
    broker.tick(CHECKPOINT_MS)


@pytest.mark.parametrize("back_ms", [0, 3 * DAY_MS])
def test_a_clock_that_jumps_days_ahead_does_not_make_the_broker_forget_producers(tmp_path: Path, back_ms: int) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.tick()
        assert [retry(broker, sequence) for sequence in (0, 1)] == [(0, 0), (0, 1)]
        checkpoint(broker)
        broker.jump(3 * DAY_MS)
        checkpoint(broker)
        broker.jump(-back_ms)
        for _ in range(3):
            checkpoint(broker)
        assert retry(broker, 1) == (0, 1), "it is recognised as a repetition"
        assert retry(broker, 9)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_is_forgotten_after_a_day_of_the_steady_clock(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.tick()
        assert retry(broker, 0) == (0, 0)
        checkpoint(broker)
        broker.tick(DAY_MS)
        checkpoint(broker)
        assert 7 not in broker.log().producers.producers


def test_a_refused_batch_shows_that_its_producer_is_not_idle(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.tick()
        assert retry(broker, 0) == (0, 0)
        checkpoint(broker)
        broker.tick(DAY_MS)
        broker.broker.disk_reserve.is_low = True
        assert retry(broker, 1)[0] == ErrorCode.KAFKA_STORAGE_ERROR
        broker.broker.disk_reserve.is_low = False
        checkpoint(broker)
        assert retry(broker, 2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
