"""Sending much: as long as the client takes it, and no longer than one may."""

import math
import time

from tailrace.server.net.chunks import CHUNK_BYTES, send_chunks


def test_all_goes_chunk_by_chunk() -> None:
    sent: list[tuple[int, int]] = []

    def send(start: int, size: int) -> int:
        sent.append((start, size))
        return size

    assert send_chunks(send, 2 * CHUNK_BYTES + 5) == 2 * CHUNK_BYTES + 5
    assert sent == [(0, CHUNK_BYTES), (CHUNK_BYTES, CHUNK_BYTES), (2 * CHUNK_BYTES, 5)]
    assert send_chunks(send, 0) == 0


def test_it_ends_where_the_client_takes_less_or_nothing() -> None:
    def half(start: int, size: int) -> int:
        return size // 2

    def nothing(start: int, size: int) -> int:
        raise BlockingIOError

    assert send_chunks(half, 2 * CHUNK_BYTES) == CHUNK_BYTES // 2
    assert send_chunks(nothing, 10) == 0


def test_it_ends_when_its_time_is_over() -> None:
    assert send_chunks(lambda _, size: size, 3 * CHUNK_BYTES, until=time.perf_counter()) == CHUNK_BYTES
    assert send_chunks(lambda _, size: size, 3 * CHUNK_BYTES, until=math.inf) == 3 * CHUNK_BYTES
