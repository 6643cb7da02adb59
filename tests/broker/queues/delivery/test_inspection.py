import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.delivery.inspection import RECORDS_MAX, TIME_MAX, Inspection, Inspections, Needs, inspect
from tailrace.records.decoders import Headers
from tailrace.records.record import Record

ALL = Needs(delivery=True, expiry=True, keys=True)


def times(*headers: tuple[str, bytes | None], timestamp: int = 1_000) -> tuple[int | None, int | None]:
    """When a record with these headers is to be delivered, and when it expires."""
    found = inspect([Record(7, timestamp, headers=headers)], 7, 7, ALL)
    due, expiry = dict(found.due), dict(found.expiry)
    return due.get(7), expiry.get(7)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), (None, None)),
        ((("x-deliver-at", b"5000"),), (5_000, None)),
        ((("x-delay-ms", b"200"),), (1_200, None)),
        ((("x-delay-ms", b"200"), ("x-deliver-at", b"1100")), (1_200, None)),
        ((("x-expires-at", b"5000"),), (None, 5_000)),
        ((("x-ttl-ms", b"200"),), (None, 1_200)),
        ((("x-ttl-ms", b"200"), ("x-expires-at", b"1100")), (None, 1_100)),
        ((("x-ttl-ms", b"1"), ("x-delay-ms", b"2")), (1_002, 1_001)),
        ((("x-deliver-at", b"1"), ("x-deliver-at", b"2")), (2, None)),
        ((("X-Deliver-At", b"5000"),), (None, None)),
        ((("x-deliver-at", b"soon"),), (None, None)),
        ((("x-deliver-at", b"-5"),), (None, None)),
        ((("x-deliver-at", b""),), (None, None)),
        ((("x-deliver-at", None),), (None, None)),
        ((("x-deliver-at", "٣".encode()),), (None, None)),
        ((("x-deliver-at", b"9" * 18),), (TIME_MAX, None)),
        ((("x-deliver-at", b"9" * 19),), (None, None)),
        ((("x-delay-ms", b"9" * 18),), (TIME_MAX, None)),
    ],
)
def test_headers_say_when(headers: Headers, expected: tuple[int | None, int | None]) -> None:
    assert times(*headers) == expected


def test_a_record_without_a_timestamp_counts_from_the_beginning() -> None:
    assert times(("x-delay-ms", b"5"), timestamp=-1) == (5, None)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=20))
def test_records_with_the_same_key_have_the_same_hash(keys: list[bytes | None]) -> None:
    records = [Record(n, 0, key) for n, key in enumerate(keys)]
    found = dict(inspect(records, 0, len(keys), ALL).keys)
    assert found.keys() == {n for n, key in enumerate(keys) if key is not None}
    for n in found:
        for other in found:
            assert (found[n] == found[other]) == (keys[n] == keys[other])


def test_only_what_is_needed_is_found() -> None:
    records = [Record(0, 0, b"key", headers=(("x-delay-ms", b"1"), ("x-ttl-ms", b"1")))]
    assert inspect(records, 0, 0, Needs()) == Inspection(0, 0, [], [], [])
    assert inspect(records, 0, 0, Needs(expiry=True)) == Inspection(0, 0, [], [(0, 1)], [])


def test_batches_that_were_inspected_long_ago_are_forgotten() -> None:
    known = Inspections(ALL)
    for n in range(100):
        known.add(Inspection(n, n, keys=[(n, 0)] * (RECORDS_MAX // 10)))
    assert known.find(0) is None
    assert known.find(99) is not None
    assert sum(known.find(n) is not None for n in range(100)) <= 10
    known.add(Inspection(99, 99))
    found = known.find(99)
    assert found is not None
    assert not found.keys
