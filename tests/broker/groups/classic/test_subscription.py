"""What consumers say of themselves is read as far as it concerns the broker; anything else is no error."""

import pytest
from group_requests import subscription
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tailrace.broker.groups.classic.subscription import subscribed_topics


@given(st.sets(st.text(st.characters(codec="ascii"), max_size=9)), st.binary(max_size=9))
def test_topics_are_found_whatever_follows(topics: set[str], rest: bytes) -> None:
    assert subscribed_topics(subscription(*topics) + rest) == topics


def test_what_a_client_writes_is_read() -> None:
    metadata = RangePartitionAssignor.metadata(["orders", "payments"]).encode()
    assert subscribed_topics(metadata) == {"orders", "payments"}


@given(st.binary(max_size=40))
def test_any_bytes_are_topics_or_none(data: bytes) -> None:
    found = subscribed_topics(data)
    assert found is None or all(isinstance(topic, str) for topic in found)


@given(st.sets(st.text(st.characters(codec="ascii"), min_size=1, max_size=9), min_size=1), st.data())
def test_what_is_cut_off_is_none(topics: set[str], data: st.DataObject) -> None:
    whole = subscription(*topics)[:-4]
    assert subscribed_topics(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff" + bytes(4),
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
    ],
)
def test_what_nobody_can_mean_is_none(data: bytes) -> None:
    assert subscribed_topics(data) is None
