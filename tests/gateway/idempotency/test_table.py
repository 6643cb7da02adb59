"""The index of keys: those that are not too old and not too many are found, however they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.gateway.idempotency.table import GENERATIONS, KeyTable


@given(
    st.integers(1, 200),
    st.integers(16, 5000),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100)), max_size=400),
)
def test_keys_are_remembered_for_as_long_as_promised_and_not_much_longer(
    keys_max: int, ms: int, steps: list[tuple[int, int]]
) -> None:
    table = KeyTable(keys_max, ms)
    now = 0
    written: list[tuple[str, int, int]] = []
    for offset, (name, pause) in enumerate(steps):
        now += pause
        table.add(str(name), offset, now)
        written.append((str(name), offset, now))
        assert len(table) <= keys_max
    latest = {key: (offset, at) for key, offset, at in written}
    recent = [key for key, _, _ in reversed(written)]
    sure = max(1, keys_max - -(-keys_max // GENERATIONS))
    for position, key in enumerate(recent):
        offset, at = latest[key]
        later = len(set(recent[:position]))
        found = table.find(key)
        assert found in (None, offset) or at < now - ms or later >= sure
        if now - at <= ms and len(written) - offset < sure:
            assert found == offset
    table.forget(now + 3 * ms)
    assert len(table) == 0
    assert table.oldest_at is None
    assert all(table.find(key) is None for key in recent)


def test_an_unknown_key_is_not_found() -> None:
    table = KeyTable(10, 1000)
    assert table.find("a") is None
    table.add("a", 7, 5)
    assert (table.find("a"), table.find("b"), table.oldest_at) == (7, None, 5)


@pytest.mark.parametrize("keys_max", [1, 2, 3])
def test_few_keys_can_be_remembered_too(keys_max: int) -> None:
    table = KeyTable(keys_max, 1000)
    for n in range(10):
        table.add(str(n), n, n)
    assert [table.find(str(n)) for n in range(10 - keys_max, 10)] == list(range(10 - keys_max, 10))
    assert len(table) == keys_max
