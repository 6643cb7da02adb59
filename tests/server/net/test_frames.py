"""Frames: requests come out whole, wherever the bytes were cut, and lengths that are only claimed cost nothing."""

import struct
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.server.net.frames import AHEAD, LEAST_BYTES, SPARES, BadFrame, Frames, SharedBuffers

FIRST = 64
LIMIT = 4096


def a_frames(scratch: int = 256, limit: int = LIMIT, first: int = FIRST, spare: int = 0) -> Frames:
    return Frames(SharedBuffers(scratch, spare), lambda key: limit if key != 18 else 32, lambda: first)


def request(length: int, key: int = 3, fill: int = 7) -> bytes:
    """A request with its length before it: the key, and `length` bytes in all."""
    return struct.pack(">ih", length, key) + bytes([fill]) * (length - 2)


def feed(
    frames: Frames, pieces: Sequence[bytes], *, is_usual: Callable[[int], bool] = lambda number: False
) -> list[bytes]:
    """What comes out, where a connection receives these pieces and others use the shared buffers in between. Requests
    that are usual, by their number, are handled the short way where they can be.
    """
    out: list[bytes] = []
    for piece in pieces:
        left = piece
        while left:
            room = frames.room()
            count = min(len(left), len(room))
            room[:count] = left[:count]
            del room
            left = left[count:]
            only = frames.only_frame(count) if is_usual(len(out)) else None
            if only is not None:
                out.append(bytes(only))
                held = frames.held_bytes
                assert frames.taken(len(only)) is (held > 0)
            else:
                frames.received(count)
                if not frames.is_waiting and frames.began_large():
                    assert frames.is_waiting
                    assert frames.held_bytes >= count - 4
            while (frame := frames.next_frame()) is not None:
                out.append(bytes(frame))
            frames.keep()
            buffers: list[Any] = [frames._scratch, *frames._buffers._spares]
            for shared in buffers:
                shared[:] = b"\xee" * len(shared)
    return out


def test_a_request_cut_anywhere_comes_out_whole() -> None:
    whole = request(40) + request(8, fill=1) + request(100, fill=2)
    expected = [request(40)[4:], request(8, fill=1)[4:], request(100, fill=2)[4:]]
    for first in range(1, len(whole)):
        assert feed(a_frames(), [whole[:first], whole[first:]]) == expected
    assert feed(a_frames(), [whole[n : n + 1] for n in range(len(whole))]) == expected


@given(
    lengths=st.lists(st.integers(8, 700), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 400), min_size=1),
    scratch=st.integers(16, 300),
    first=st.integers(1, 300),
    spare=st.just(0) | st.integers(300, 800),
    usual=st.sets(st.integers(0, 11)),
)
def test_any_requests_in_any_pieces(
    lengths: list[int], cuts: list[int], scratch: int, first: int, spare: int, usual: set[int]
) -> None:
    whole = b"".join(request(length, fill=n) for n, length in enumerate(lengths))
    pieces: list[bytes] = []
    position = 0
    while position < len(whole):
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(whole[position : position + size])
        position += size
    frames = a_frames(scratch, first=first, spare=spare)
    expected = [request(length, fill=n)[4:] for n, length in enumerate(lengths)]
    assert feed(frames, pieces, is_usual=usual.__contains__) == expected
    assert not frames.is_amid
    assert frames.held_bytes == 0
    assert len(frames._buffers._spares) == SPARES


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 1, 7, LIMIT + 1, (1 << 31) - 1])
def test_a_length_that_no_request_has_is_refused_before_anything_is_allocated(length: int) -> None:
    frames = a_frames()
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame):
            feed(frames, [struct.pack(">ih", length, 3)])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_limit_is_that_of_the_key() -> None:
    assert feed(a_frames(), [request(32, key=18)]) == [request(32, key=18)[4:]]
    with pytest.raises(BadFrame, match="33 bytes for API key 18"):
        feed(a_frames(), [request(33, key=18)])


def test_nothing_is_said_before_the_key_is_there() -> None:
    frames = a_frames()
    assert feed(frames, [struct.pack(">i", -5), b"\0"]) == []
    with pytest.raises(BadFrame):
        feed(frames, [b"\3"])


@pytest.mark.parametrize("first", [FIRST, 1 << 20])
def test_a_claimed_length_costs_no_more_than_a_few_times_what_has_arrived(first: int) -> None:
    frames = a_frames(scratch=64, limit=1 << 20, first=first)
    whole = request(1 << 20)
    arrived = 0
    for start in range(0, 100_000, 64):
        feed(frames, [whole[start : start + 64]])
        arrived += 64
        assert frames.held_bytes <= max(LEAST_BYTES, AHEAD * arrived)


def test_the_growth_is_known_before_it_happens() -> None:
    frames = a_frames(limit=1 << 20, first=FIRST)
    feed(frames, [request(1000)[: 4 + FIRST]])
    assert frames.growth == 3 * FIRST
    before = frames.held_bytes
    assert len(frames.room()) == 3 * FIRST
    assert frames.held_bytes == before + 3 * FIRST
    assert frames.growth == 0


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_large_request_that_is_all_there_is_is_handled_where_it_lies(pieces: int) -> None:
    frames, whole = a_frames(scratch=256, spare=1000), request(900)
    feed(frames, [whole])  # from then on it is expected to send large ones
    step = -(-len(whole) // pieces)
    cut = [whole[at : at + step] for at in range(0, len(whole), step)]
    for piece in cut[:-1]:
        feed(frames, [piece])
    room = frames.room()
    room[: len(cut[-1])] = cut[-1]
    only = frames.only_frame(len(cut[-1]))
    assert only is not None
    assert only == whole[4:]
    assert only.obj is room.obj, "it is not copied"
    assert frames.taken(len(only)) is (pieces > 1)
    assert len(frames._buffers._spares) == SPARES
    assert (frames.held_bytes, frames.is_amid) == (0, False)


def test_the_beginning_of_a_large_request_is_known_as_such_from_who_has_sent_one() -> None:
    frames = a_frames(scratch=LEAST_BYTES, limit=1 << 20, spare=8 * LEAST_BYTES)
    large = request(4 * LEAST_BYTES)

    def begins(data: bytes) -> bool:
        frames.room()[: len(data)] = data
        frames.received(len(data))
        return frames.began_large()

    assert not begins(large[:LEAST_BYTES]), "nobody has sent one"
    assert frames.next_frame() is None
    room = frames.room()
    room[:] = large[LEAST_BYTES:]
    frames.received(len(room))
    del room
    assert frames.next_frame() == large[4:]
    frames.keep()
    assert begins(large[: 2 * LEAST_BYTES])
    assert frames.is_waiting
    room = frames.room()
    room[:] = large[2 * LEAST_BYTES :]
    frames.received(len(room))
    del room
    assert frames.next_frame() == large[4:]
    frames.keep()
    assert not begins(request(2 * LEAST_BYTES)[:-1] + bytes(1)), "it is whole"
    assert frames.next_frame() is not None


def test_the_beginning_of_one_that_is_too_large_is_refused() -> None:
    frames = a_frames(scratch=LEAST_BYTES, limit=4 * LEAST_BYTES, spare=8 * LEAST_BYTES)
    feed(frames, [request(4 * LEAST_BYTES)])
    data = request(4 * LEAST_BYTES + 1)[: 2 * LEAST_BYTES]
    frames.room()[: len(data)] = data
    frames.received(len(data))
    with pytest.raises(BadFrame):
        frames.began_large()


def test_one_that_is_idle_holds_nothing() -> None:
    frames = a_frames()
    assert (frames.held_bytes, frames.is_amid) == (0, False)
    feed(frames, [request(20)])
    assert (frames.held_bytes, frames.is_amid) == (0, False)
    feed(frames, [request(20)[:3]])
    assert (frames.held_bytes, frames.is_amid) == (3, True)
    feed(frames, [request(20)[3:]])
    assert (frames.held_bytes, frames.is_amid) == (0, False)


def test_requests_that_have_to_wait_are_safe_from_the_shared_buffer() -> None:
    frames = a_frames()
    whole = request(20, fill=1) + request(30, fill=2) + request(40, fill=3)
    frames.room()[: len(whole)] = whole
    frames.received(len(whole))
    first = frames.next_frame()
    assert first is not None
    assert bytes(first) == request(20, fill=1)[4:]
    frames.keep()
    frames.room()[:] = b"\xee" * 256  # somebody else's
    second = frames.next_frame()
    frames.keep()
    third = frames.next_frame()
    assert second is not None
    assert third is not None
    assert (bytes(second), bytes(third)) == (request(30, fill=2)[4:], request(40, fill=3)[4:])
    assert frames.next_frame() is None


def test_what_waits_is_copied_once() -> None:
    """However many turns it takes to work it off: a quarter of a megabyte of tiny requests would cost gigabytes."""
    frames = a_frames()
    frames.room()[:240] = request(8) * 20
    frames.received(240)
    frames.next_frame()
    frames.keep()
    kept = frames._data
    frames.next_frame()
    frames.keep()
    assert frames._data is kept


def test_a_large_request_is_received_into_a_spare_buffer_that_the_next_one_gets() -> None:
    buffers = SharedBuffers(scratch=64, spare=1000, spares=1)
    frames = [Frames(buffers, lambda _: 2000, lambda: FIRST) for _ in range(3)]
    whole = [request(900, fill=n) for n in range(3)]
    assert feed(frames[0], [whole[0]]) == [whole[0][4:]]
    assert feed(frames[1], [whole[1][:200]]) == []
    assert frames[1].held_bytes == 1000
    assert feed(frames[2], [whole[2]]) == [whole[2][4:]]  # the spare one is taken: it gets its own
    assert feed(frames[1], [whole[1][200:]]) == [whole[1][4:]]
    assert frames[1].held_bytes == 0
    assert buffers.take(900) is not None


def test_a_connection_that_ends_amid_a_request_gives_its_spare_buffer_back() -> None:
    buffers = SharedBuffers(scratch=64, spare=1000, spares=1)
    frames = Frames(buffers, lambda _: 2000, lambda: FIRST)
    feed(frames, [request(900)[:200]])
    assert buffers.take(900) is None
    frames.release()
    assert buffers.take(900) is not None


@pytest.mark.parametrize("spare", [0, 1000])
@pytest.mark.parametrize("arrived", [3, 200, 800])
def test_one_that_is_closed_holds_no_memory(arrived: int, spare: int) -> None:
    buffers = SharedBuffers(scratch=64, spare=spare, spares=1)
    frames = Frames(buffers, lambda _: 2000, lambda: FIRST)
    feed(frames, [request(900), request(900)[:arrived]])
    assert frames.held_bytes
    frames.close()
    assert (frames.held_bytes, frames.is_amid, len(buffers._spares)) == (0, False, 1)
    assert frames._room.obj is buffers.scratch.obj


def test_bytes_after_a_large_request_go_into_a_spare_buffer_and_are_not_moved() -> None:
    buffers = SharedBuffers(scratch=64, spare=1000, spares=1)
    frames = Frames(buffers, lambda _: 2000, lambda: FIRST)
    assert feed(frames, [request(900)]) == [request(900)[4:]]
    room = frames.room()
    assert len(room) == 1000
    room[:200] = request(800)[:200]
    frames.received(200)
    assert frames.next_frame() is None
    assert frames.room().obj is room.obj, "nothing is copied"
    assert feed(frames, [request(800)[200:]]) == [request(800)[4:]]


def test_an_idle_connection_gives_its_spare_buffer_back_and_so_does_a_small_request() -> None:
    buffers = SharedBuffers(scratch=64, spare=1000, spares=1)
    frames = Frames(buffers, lambda _: 2000, lambda: FIRST)
    feed(frames, [request(900)])
    assert len(frames.room()) == 1000
    frames.keep()
    assert len(buffers._spares) == 1
    assert feed(frames, [request(20)]) == [request(20)[4:]]
    assert len(frames.room()) == 64
