"""What became of records: counters of one group and topic, since the start of the broker."""

from tailrace.broker.queues.partition.states import Decision, EndReason


class Outcomes:
    __slots__ = ("acknowledged", "dead_lettered", "expired", "lost", "rejected", "released")

    def __init__(self) -> None:
        self.acknowledged = 0  # accepted
        self.released = 0  # to be delivered again
        self.rejected = 0  # without a dead-letter topic
        self.dead_lettered = 0  # written to the dead-letter topic
        self.expired = 0  # likewise without one
        self.lost = 0  # overtaken by the start of the log, or delivered too often without a dead-letter topic

    def add(self, decision: Decision) -> None:
        self.acknowledged += decision.accepted
        self.released += decision.released
        for ended in decision.ended:
            if ended.is_dead_letter:
                continue  # counted when it is written
            records = ended.last - ended.first + 1
            match ended.reason:
                case EndReason.EXPIRED:
                    self.expired += records
                case EndReason.REJECTED:
                    self.rejected += records
                case EndReason.LOST | EndReason.ATTEMPTS:
                    self.lost += records

    def add_all(self, other: "Outcomes") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
