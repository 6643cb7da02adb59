"""Compaction against a dict: whatever producers do, in however many passes, the newest value of each key is there, at
the offset it got, and the log goes on as if nothing had happened.
"""

from itertools import pairwise

from compactions import World, batches_of, last_of_producers, producers_from_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import ORDERS

from tailrace.records.batch import read_header
from tailrace.records.compression import Codec
from tailrace.records.control import Marker

KEYS = [b"a", b"b", b"c", b"d", b"e"]
PAIRS = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([b"x" * 30, b"y", None])), min_size=1, max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("write"), PAIRS, st.sampled_from(Codec), st.sampled_from([-1, 5])),
    st.tuples(st.just("write"), PAIRS, st.just(Codec.NONE), st.just(-1)),
    st.tuples(st.just("transact"), PAIRS, st.sampled_from([Codec.NONE, Codec.ZSTD]), st.sampled_from([7, 8])),
    st.tuples(st.just("mark"), st.sampled_from([7, 8]), st.sampled_from(Marker)),
    st.tuples(st.just("compact"), st.sampled_from([0, 500, 2000]), st.sampled_from([128 << 20, 24 * 30])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("reopen")),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, min_size=5, max_size=60))
def test_the_newest_value_of_each_key_is_there_at_its_offset_after_any_passes(steps: list[tuple]) -> None:
    world = World()
    for step in steps:
        match step:
            case ("write", pairs, codec, producer):
                world.write(pairs, codec, producer, False)
            case ("transact", pairs, codec, producer):
                world.write(pairs, codec, producer, True)
            case ("mark", producer, marker):
                world.mark(producer, marker)
            case ("compact", later, memory):
                world.now += later
                world.compact(memory)
            case ("roll",):
                world.log.roll()
            case _:
                world.reopen()
    world.log.flush()
    world.check()
    end = world.log.end_offset
    producers = dict(world.log.producers.producers)
    assert last_of_producers(producers_from_batches(world.log)) == last_of_producers(world.log.producers)
    world.reopen()
    world.check()
    assert world.log.end_offset == end
    assert dict(world.log.producers.producers) == producers
    assert not world.directory.reports[ORDERS].damage
    headers = [read_header(data) for data in batches_of(world.log)]
    assert all(one.next_offset <= other.base_offset for one, other in pairwise(headers))
    assert not headers or headers[-1].next_offset == end, "a reader gets to the end"
