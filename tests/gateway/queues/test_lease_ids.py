"""Leases have names that nobody can make up."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from hypothesis import given
from hypothesis import strategies as st

from tailrace.gateway.queues.lease_ids import LENGTH, LeaseIds

IDS = LeaseIds()
ONE = IDS.new(3, 1 << 40, 2)


def test_each_delivery_has_a_name_of_its_own() -> None:
    names = [IDS.new(0, offset % 2, 1) for offset in range(1000)]
    assert len(set(names)) == 1000
    assert all(len(name) == LENGTH and IDS.is_known(name) for name in names)
    assert not LeaseIds().is_known(ONE), "that is of another queue"


@given(
    st.one_of(
        st.text(max_size=2 * LENGTH), st.binary(min_size=36, max_size=36).map(urlsafe_b64encode).map(bytes.decode)
    )
)
def test_a_text_that_was_made_up_is_unknown(text: str) -> None:
    assert not IDS.is_known(text)


@given(st.integers(0, 35), st.integers(1, 255))
def test_a_name_that_was_changed_is_unknown(index: int, change: int) -> None:
    data = bytearray(urlsafe_b64decode(ONE))
    data[index] ^= change
    assert not IDS.is_known(urlsafe_b64encode(data).decode())
