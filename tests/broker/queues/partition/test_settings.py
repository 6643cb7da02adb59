from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.queues.partition.settings import PartitionSettings, retry_delay_ms

OFFSETS = st.integers(0, (1 << 63) - 1)


@given(OFFSETS, st.integers(1, 25), st.integers(0, 1 << 32))
def test_a_delay_is_within_the_jitter_of_its_backoff_and_always_the_same(offset: int, count: int, seed: int) -> None:
    settings = PartitionSettings(retry_delay_ms=1_000, retry_multiplier=3.0, retry_jitter=0.2, seed=seed)
    backoff = min(1_000 * 3 ** (count - 1), settings.retry_delay_max_ms)
    delay = retry_delay_ms(settings, offset, count)
    assert 0.8 * backoff - 1 <= delay <= 1.2 * backoff + 1
    assert retry_delay_ms(settings, offset, count) == delay


@given(OFFSETS)
def test_the_largest_backoff_is_a_number(offset: int) -> None:
    settings = PartitionSettings(retry_delay_ms=604_800_000, retry_multiplier=100.0, retry_delay_max_ms=604_800_000)
    assert retry_delay_ms(settings, offset, 31) <= 1.2 * 604_800_000


def test_jitter_spreads_the_delays_of_neighbours() -> None:
    settings = PartitionSettings(retry_delay_ms=1_000, retry_jitter=0.5)
    delays = [retry_delay_ms(settings, offset, 1) for offset in range(10_000)]
    tenths = [sum(1 for delay in delays if delay // 100 == n) for n in range(5, 15)]
    assert all(800 < found < 1_200 for found in tenths)
    assert len({retry_delay_ms(settings._replace(seed=seed), 7, 1) for seed in range(100)}) > 50


def test_suspects_are_those_past_half_of_their_attempts() -> None:
    assert [PartitionSettings(attempts_max=n).suspect_from for n in range(2, 11)] == [2, 2, 2, 3, 3, 4, 4, 5, 5]
