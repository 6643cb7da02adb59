"""How many bytes all logs take, kept up as they change: nobody goes over all of them to know.

A log is measured when it comes, after each flush, after a deletion or a compaction, and when retention looks at it. So
the total is at most a second behind what clients do.
"""

from tailrace.log.log import Log


class LogSizes:
    def __init__(self) -> None:
        self._sizes: dict[Log, int] = {}
        self.total = 0

    def measure(self, log: Log) -> None:
        size = log.size
        self.total += size - self._sizes.get(log, 0)
        self._sizes[log] = size

    def forget(self, log: Log) -> None:
        self.total -= self._sizes.pop(log, 0)
