"""What is said to be in memory is there, by either way of asking."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.disk import page_cache
from tailrace.log.disk.page_cache import fill_without_waiting, is_cached

SIZE = 2 << 20


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(random.Random(7).randbytes(SIZE))
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)  # the system forgets nothing that is not on disk
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nor reads what nobody asks for
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=["by its count", "by samples"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, descriptor: int) -> str:
    if request.param == "by samples":
        monkeypatch.setattr(page_cache, "_count", page_cache._does_not_say)
    elif page_cache._counting()(descriptor, 0, 1) < 0:
        pytest.skip("this system counts no pages")
    else:
        monkeypatch.setattr(page_cache, "_count", None)
    return str(request.param)


def forget(descriptor: int) -> None:
    """All of it: of a part the system may have more in one piece."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if fill_without_waiting(bytearray(1), descriptor, SIZE // 2):
        pytest.skip("this file system does not forget")


def test_what_was_just_written_is_cached(descriptor: int, asked: str) -> None:
    assert is_cached(descriptor, 0, SIZE)
    assert is_cached(descriptor, 4095, 2)
    assert is_cached(descriptor, SIZE - 1, 1)


def test_what_was_forgotten_is_not_and_what_was_read_again_is(descriptor: int, asked: str) -> None:
    forget(descriptor)
    assert not is_cached(descriptor, 0, SIZE)
    assert not is_cached(descriptor, 12_345, 678)
    os.pread(descriptor, SIZE, 0)
    assert is_cached(descriptor, 0, SIZE)


def test_a_gap_between_two_samples_is_noticed_by_the_count(descriptor: int, asked: str) -> None:
    forget(descriptor)
    for position in range(0, SIZE, 32 << 10):
        os.pread(descriptor, 1, position)
    os.pread(descriptor, 1, SIZE - 1)
    assert is_cached(descriptor, 0, SIZE) == (asked == "by samples")


def test_what_lies_behind_the_end_of_a_file_is_not_cached(descriptor: int, asked: str) -> None:
    assert not is_cached(descriptor, SIZE - 10, 11)
    assert not is_cached(descriptor, SIZE, 1)


def test_a_system_that_does_not_count_is_asked_once(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(descriptor: int, position: int, size: int) -> int:
        asked.append(position)
        return -1

    monkeypatch.setattr(page_cache, "_count", refuse)
    assert is_cached(descriptor, 0, SIZE)
    assert is_cached(descriptor, 0, SIZE)
    assert asked == [0]
