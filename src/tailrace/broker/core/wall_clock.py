"""Decides whether the wall clock is trusted enough to delete records by age.

A clock that jumps ahead may be wrong, and may soon be corrected. Until then, or for PATIENCE_MS, nothing is deleted by
age: retention and compaction check `is_trusted` first. State that need not survive a restart uses the steady clock,
which never jumps.
"""

import logging

logger = logging.getLogger("tailrace.broker.core")

JUMP_MS = 3_600_000  # in one tick, compared with the steady clock
PATIENCE_MS = 600_000


class WallClock:
    def __init__(self) -> None:
        self._ahead_ms: int | None = None  # of the steady clock, at the last tick
        self._trusted_ahead_ms = 0  # the same before the jump
        self._trusted_from_ms: int | None = None  # steady; None where the clock is trusted

    @property
    def is_trusted(self) -> bool:
        return self._trusted_from_ms is None

    def tick(self, now_ms: int, steady_ms: int) -> None:
        ahead_ms = now_ms - steady_ms
        jump_ms = ahead_ms - self._ahead_ms if self._ahead_ms is not None else 0
        if jump_ms > JUMP_MS:
            if self.is_trusted:
                self._trusted_ahead_ms = ahead_ms - jump_ms
            self._trusted_from_ms = steady_ms + PATIENCE_MS
            logger.warning(
                "the clock has jumped ahead by %d s: no records are deleted by age for %d s. "
                "Set it back if it is wrong",
                jump_ms // 1000, PATIENCE_MS // 1000,
            )  # fmt: skip
        elif self._trusted_from_ms is not None and (
            steady_ms >= self._trusted_from_ms or ahead_ms - self._trusted_ahead_ms <= JUMP_MS
        ):
            self._trusted_from_ms = None
        self._ahead_ms = ahead_ms
