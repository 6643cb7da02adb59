"""How many bytes lie behind a position, and how old they are, against a model that forgets nothing."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.backlog.measure import SAMPLE_BYTES, SAMPLE_MS, SAMPLES_MAX, Backlog, Samples
from tailrace.log.retention import SegmentFacts


@dataclass
class Append:
    base: int
    next: int
    size: int
    at_ms: int


@st.composite
def appends(draw: st.DrawFn) -> list[Append]:
    found, offset, now = [], draw(st.integers(0, 5)), 1_000_000
    steps = st.tuples(st.integers(1, 50), st.integers(1, 100_000), st.integers(0, 300))
    for records, size, waited in draw(st.lists(steps, min_size=1, max_size=60)):
        now += waited
        found.append(Append(offset, offset + records, size, now))
        offset += records
    return found


def sampled(made: list[Append]) -> Samples:
    samples = Samples()
    for one in made:
        samples.appended(one.base, one.next, one.size, one.at_ms, 0)
    return samples


@given(appends(), st.data())
def test_a_backlog_is_right_within_one_sample(made: list[Append], data: st.DataObject) -> None:
    samples, now = sampled(made), made[-1].at_ms + 10
    position = data.draw(st.integers(made[0].base, made[-1].next + 3))
    unread = [one for one in made if one.next > position]
    found = samples.behind(position, now)
    if not unread:
        assert found == Backlog()
        return
    largest = max(one.size for one in made)
    assert abs(found.bytes - sum(one.size for one in unread)) <= SAMPLE_BYTES + 2 * largest
    assert 0 <= found.age_ms - (now - unread[0].at_ms) <= SAMPLE_MS, "never too young, and hardly too old"


@given(appends())
def test_a_backlog_shrinks_as_a_group_reads(made: list[Append]) -> None:
    samples, now = sampled(made), made[-1].at_ms
    found = [samples.behind(position, now) for position in range(made[0].base, made[-1].next + 1)]
    assert found == sorted(found, key=lambda one: one.bytes, reverse=True)
    assert found == sorted(found, key=lambda one: one.age_ms, reverse=True)


def test_samples_are_bounded_and_the_backlog_stays_nearly_right() -> None:
    samples, size = Samples(), SAMPLE_BYTES
    for number in range(20 * SAMPLES_MAX):
        samples.appended(number, number + 1, size, number * 200, 0)
        assert len(samples) <= SAMPLES_MAX
    end = 20 * SAMPLES_MAX
    for behind in (1, 10, 1_000, end // 2, end):
        found = samples.behind(end - behind, end * 200)
        assert abs(found.bytes - behind * size) <= max(size, behind * size // 10)


def test_what_was_deleted_needs_no_samples() -> None:
    samples = Samples()
    for number in range(SAMPLES_MAX + 1):
        samples.appended(number, number + 1, SAMPLE_BYTES, number * 200, number)
    assert len(samples) < 10


def test_after_a_start_segments_are_shared_out_by_offset() -> None:
    segments = [SegmentFacts(0, 100, 1000, 5_000), SegmentFacts(100, 200, 3000, 9_000), SegmentFacts(200, 200, 0, None)]
    samples = Samples.of_segments(segments, 1_000, 10_000)
    assert samples.behind(0, 10_000) == Backlog(4000, 9_000)
    assert samples.behind(200, 10_000) == Backlog()
    assert samples.behind(100, 10_000) == Backlog(3000, 5_000)
    middle = samples.behind(150, 10_000)
    assert middle == Backlog(1500, 3_000)


def test_a_time_that_is_not_in_memory_limits_no_group() -> None:
    segments = [SegmentFacts(0, 10, 1000, None), SegmentFacts(10, 20, 1000, None), SegmentFacts(20, 30, 1000, 7_000)]
    samples = Samples.of_segments(segments, None, 10_000)
    assert samples.behind(0, 10_000) == Backlog(3000, 3_000)
    assert Samples.of_segments(segments[:1], None, 10_000).behind(0, 10_000) == Backlog(1000, 0)
    assert Samples.of_segments([], None, 10_000).behind(0, 10_000) == Backlog()


def test_the_nearer_limit_counts() -> None:
    assert Backlog(50, 900).fill(100, 1_000) == 0.9
    assert Backlog(50, 900).fill(100, -1) == 0.5
    assert Backlog(50, 900).fill(-1, -1) == 0
    assert Backlog(1, 0).fill(0, -1) > 1
    assert Backlog().fill(0, 0) == 0
