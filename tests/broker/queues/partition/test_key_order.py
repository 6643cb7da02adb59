from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.partition.key_order import KeyOrder


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=40), st.data())
def test_the_first_unfinished_record_of_each_key_does_not_wait(
    added: list[tuple[int, int]], data: st.DataObject
) -> None:
    order = KeyOrder(0)
    keys: dict[int, int] = {}
    offset = 0
    free: set[int] = set()
    for key, step in added:
        waiting = list(order.add([(offset, key)], offset + 1))
        assert waiting == ([offset] if key in keys.values() else [])
        free |= {offset} - set(waiting)
        keys[offset] = key
        offset += step
        if keys and data.draw(st.booleans(), "some are finished"):
            first, last = sorted((data.draw(st.integers(0, offset)), data.draw(st.integers(0, offset))))
            free |= set(order.finish(first, last))
            keys = {one: of for one, of in keys.items() if not first <= one <= last}
            free &= keys.keys()
        heads = {min(one for one, of in keys.items() if of == key) for key in keys.values()}
        assert free == heads
        assert {one for one in keys if order.must_wait(one)} == keys.keys() - heads
        assert order.waiting_in(0, offset) == sorted(keys.keys() - heads)
        assert len(order) == len(keys)


def test_nothing_is_kept_of_finished_records() -> None:
    order = KeyOrder(5)
    list(order.add([(n, n % 7) for n in range(5, 100)], 120))
    assert order.known_to == 120
    assert order.finish(0, 99) == []
    assert (order._keys, order._heads, order._waiting) == ({}, {}, {})
