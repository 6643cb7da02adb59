"""Appends batches of a kilobyte to a new log, and prints the CPU microseconds that each took.

    python -m bench.guard.append

Runs once for each side and round, with the `tailrace` that PYTHONPATH says. Uses of it as little as can be.
"""

import time

from bench.harness.batches import NOW_MS, some_batches
from bench.harness.place import temporary_place

_TIMES, _BATCHES = 150, 100


def main() -> None:
    batches = some_batches(1 << 10, _BATCHES)
    with temporary_place() as place, place.log() as log:
        for batch in batches:
            log.append(batch, NOW_MS)
        start = time.process_time()
        for _ in range(_TIMES):
            for batch in batches:
                log.append(batch, NOW_MS)
        print(1e6 * (time.process_time() - start) / (_TIMES * _BATCHES))


if __name__ == "__main__":
    main()
