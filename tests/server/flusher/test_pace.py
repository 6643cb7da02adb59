"""Who waits for a commit: the loop where the disk is quick, a thread where it is not, or was not a moment ago."""

from tailrace.server.flusher.pace import QUICK_S, STALL_S, DiskPace


def told(*seconds: float) -> DiskPace:
    pace = DiskPace()
    for one in seconds:
        pace.took(one)
    return pace


def test_nobody_knows_at_first() -> None:
    assert not DiskPace().is_quick


def test_a_quick_disk_is_known_soon() -> None:
    assert told(QUICK_S / 4).is_quick


def test_a_slow_one_stays_slow() -> None:
    assert not told(*[QUICK_S * 2] * 1000).is_quick


def test_one_that_is_late_once_is_still_quick() -> None:
    assert told(*[QUICK_S / 4] * 100, QUICK_S * 3).is_quick


def test_a_quick_one_whose_waiters_wait_for_a_processor_too_is_quick() -> None:
    assert told(*[QUICK_S / 3, QUICK_S * 2] * 100).is_quick


def test_one_that_becomes_slower_is_known_after_a_while() -> None:
    assert not told(*[QUICK_S / 4] * 100, *[QUICK_S * 2] * 40).is_quick


def test_one_that_is_late_again_and_again_is_not_relied_on() -> None:
    assert not told(*[QUICK_S / 4, STALL_S * 0.99] * 100).is_quick


def test_a_stall_is_remembered_for_a_while_and_made_up_for() -> None:
    stalled = [QUICK_S / 4] * 100 + [STALL_S * 2]
    assert not told(*stalled).is_quick
    assert not told(*stalled, *[QUICK_S / 4] * 20).is_quick
    assert told(*stalled, *[QUICK_S / 4] * 100).is_quick


def test_what_is_run_is_timed() -> None:
    ran = []
    pace = DiskPace()
    pace.time(lambda: ran.append(1))
    assert ran == [1]
    assert pace.is_quick
