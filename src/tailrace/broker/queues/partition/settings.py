"""The configs of a group that its share partitions need, and the delay of a retry."""

from typing import NamedTuple

_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of the hash splitmix64
_64_BITS = (1 << 64) - 1


class PartitionSettings(NamedTuple):
    attempts_max: int = 5
    locks_max: int = 2_000
    is_renewable: bool = True
    lock_total_max_ms: int = 43_200_000
    has_dead_letters: bool = False  # a dead-letter topic
    parked_max: int = 1_000_000
    retry_delay_ms: int = 0
    retry_multiplier: float = 2.0
    retry_delay_max_ms: int = 600_000
    retry_jitter: float = 0.2
    seed: int = 0  # of the jitter
    orders_by_key: bool = False  # records with the same key are delivered one after another

    @property
    def suspect_from(self) -> int:
        """From how many deliveries on a record is delivered by itself, so that it cannot take others with it."""
        return max(2, (self.attempts_max + 1) // 2)


def retry_delay_ms(settings: PartitionSettings, offset: int, count: int) -> int:
    """Returns how long a record waits that was delivered `count` times. The same record always waits equally long."""
    delay = settings.retry_delay_ms * settings.retry_multiplier ** (count - 1)
    delay = min(delay, settings.retry_delay_max_ms)
    return round(delay * (1 + settings.retry_jitter * (2 * _fraction(settings.seed + offset * 32 + count) - 1)))


def _fraction(number: int) -> float:
    """Returns a number from 0 to 1 that depends on all bits of another one."""
    mixed = number * _MULTIPLIERS[0] & _64_BITS
    mixed = (mixed ^ mixed >> 30) * _MULTIPLIERS[1] & _64_BITS
    mixed = (mixed ^ mixed >> 27) * _MULTIPLIERS[2] & _64_BITS
    return (mixed ^ mixed >> 31) / _64_BITS
