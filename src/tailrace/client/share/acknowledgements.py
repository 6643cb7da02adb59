"""Outcomes of acquired records, and the acknowledgement batches that carry them. Pure."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from tailrace.protocol.messages import share_acknowledge as wire
from tailrace.protocol.messages.share_acknowledge import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic

REQUEST_MAX = 5000  # acknowledgements in one request


class Outcome(IntEnum):
    """What becomes of a record, as on the wire."""

    GAP = wire.GAP  # there is no record at the offset
    ACCEPT = wire.ACCEPT
    RELEASE = wire.RELEASE
    REJECT = wire.REJECT
    RENEW = wire.RENEW  # it stays acquired, for another lock duration


class SharePartition(NamedTuple):
    """A partition as requests of share groups name it."""

    topic_id: bytes
    number: int


class Acknowledgement(NamedTuple):
    """One outcome for a range of offsets."""

    partition: SharePartition
    first: int
    last: int
    outcome: Outcome


class Terms(NamedTuple):
    """What holds for all acknowledgements of a request. Durations need a tailrace broker; None: as configured.

    `is_alone` asks for a request with one acknowledgement, so that another one cannot make it fail.
    """

    is_renewal: bool = False
    lock_ms: int | None = None
    delay_ms: int | None = None
    is_alone: bool = False


_PLAIN = Terms()


class Outbox:
    """Acknowledgements that wait to be sent. A later one for the same first offset replaces an earlier one."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[SharePartition, int], tuple[Terms, Acknowledgement]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, acknowledgement: Acknowledgement, terms: Terms = _PLAIN) -> None:
        key = acknowledgement.partition, acknowledgement.first
        self._waiting.pop(key, None)
        self._waiting[key] = terms, acknowledgement

    def forget(self, partition: SharePartition, first: int) -> None:
        self._waiting.pop((partition, first), None)

    def take(self) -> tuple[Terms, list[Acknowledgement]]:
        """Removes what the next request may carry: the oldest, and those under the same terms."""
        terms = next(iter(self._waiting.values()))[0]
        taken = []
        for key, (found, acknowledgement) in list(self._waiting.items()):
            if found == terms:
                taken.append(acknowledgement)
                del self._waiting[key]
                if terms.is_alone or len(taken) == REQUEST_MAX:
                    break
        return terms, taken

    def drain(self) -> list[Acknowledgement]:
        waiting, self._waiting = self._waiting, {}
        return [acknowledgement for _, acknowledgement in waiting.values()]


def topics_of(acknowledgements: Iterable[Acknowledgement]) -> list[AcknowledgeTopic]:
    """Returns them as a request has them: ascending, with neighbours of the same outcome joined."""
    topics: dict[bytes, AcknowledgeTopic] = {}
    partitions: dict[SharePartition, AcknowledgePartition] = {}
    for partition, first, last, outcome in sorted(acknowledgements):
        found = partitions.get(partition)
        if found is None:
            found = partitions[partition] = AcknowledgePartition(partition_index=partition.number)
            topic = topics.setdefault(partition.topic_id, AcknowledgeTopic(topic_id=partition.topic_id))
            topic.partitions.append(found)
        batches = found.acknowledgement_batches
        if batches and batches[-1].last_offset + 1 == first and batches[-1].acknowledge_types == [outcome]:
            batches[-1].last_offset = last
        else:
            batches.append(AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[int(outcome)]))
    return list(topics.values())
