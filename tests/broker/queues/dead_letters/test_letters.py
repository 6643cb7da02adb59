import pytest

from tailrace.broker.queues.dead_letters.letters import DeadLetter, Origin, offset_in, reason_of, record_of
from tailrace.broker.queues.partition.states import EndReason
from tailrace.records.record import Record

ORIGIN = Origin("workers", "orders", 3)
LETTER = DeadLetter(17, 5, EndReason.ATTEMPTS, 1_000)


def test_a_dead_letter_has_its_record_and_says_what_became_of_it() -> None:
    copied = Record(17, 5, b"key", b"value", (("trace", b"1"), ("trace", b"2"), ("none", None)))
    record = record_of(LETTER, ORIGIN, copied, 2_000)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 2_000)
    assert record.headers[:3] == copied.headers
    assert dict(record.headers[3:]) == {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"17",
        "__dlq.errors.group": b"workers",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": b"the record was delivered as often as its share group allows "
        b"(share.delivery.count.limit)",
        "__dlq.errors.reason": b"attempts",
        "__dlq.errors.timestamp": b"1000",
    }
    assert len(record.headers) == 3 + 8


def test_without_a_copy_there_are_only_headers() -> None:
    record = record_of(LETTER, ORIGIN, None, 2_000)
    assert (record.key, record.value) == (None, None)
    assert offset_in(record.headers, ORIGIN) == 17


def test_a_dead_letter_that_is_given_up_again_has_its_last_failure_only() -> None:
    first = record_of(LETTER, ORIGIN, Record(17, 5, value=b"v", headers=(("own", b"1"),)), 2_000)
    again = record_of(DeadLetter(4, 1, EndReason.REJECTED, 3_000), Origin("other", "dlq", 0), first, 4_000)
    assert again.value == b"v"
    assert again.headers[0] == ("own", b"1")
    assert len(again.headers) == 1 + 8
    assert offset_in(again.headers, ORIGIN) is None
    assert offset_in(again.headers, Origin("other", "dlq", 0)) == 4


@pytest.mark.parametrize(
    "other", [Origin("w", "orders", 3), Origin("workers", "order", 3), Origin("workers", "orders", 4)]
)
def test_dead_letters_of_other_share_partitions_are_told_apart(other: Origin) -> None:
    assert offset_in(record_of(LETTER, ORIGIN, None, 0).headers, other) is None


@pytest.mark.parametrize("offset", [None, b"", b"-1", b"x", b"\xb2", b"1" * 5_000])
def test_what_only_looks_like_a_dead_letter_is_none(offset: bytes | None) -> None:
    headers = tuple(
        (key, offset if key.endswith(".offset") else text) for key, text in record_of(LETTER, ORIGIN, None, 0).headers
    )
    assert offset_in(headers, ORIGIN) is None
    assert offset_in((), ORIGIN) is None


def test_the_state_of_a_record_tells_why_it_was_given_up() -> None:
    assert [reason_of(count, 5) for count in (0, 1, 4, 5, 6)] == [
        EndReason.EXPIRED, EndReason.REJECTED, EndReason.REJECTED, EndReason.ATTEMPTS, EndReason.ATTEMPTS
    ]  # fmt: skip
