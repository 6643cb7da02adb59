"""Members of share groups for tests of a broker: they fetch, acknowledge and leave by raw requests.

    worker = Worker(broker, topic_id)
    first, second = worker.fetch().offsets
    worker.accept(first)
    worker.release(second)

A worker fetches one partition, `orders-0`, unless it is given others. It begins its session with its first fetch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from brokers import LocalBroker, resolved

from tailrace.broker.core.clients import ClientConnection
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_acknowledge import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from tailrace.protocol.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from tailrace.records.batch import split
from tailrace.records.record import decode_records

GROUP = "workers"
FINAL = -1

Ranges = Iterable[tuple[int, int, Sequence[int]]]
Place = tuple[bytes, int]


class Delivery:
    """The response to a ShareFetch."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.error_code = ErrorCode(response.error_code)  # type: ignore[call-arg]

    @property
    def partitions(self) -> dict[Place, Any]:
        return {
            (topic.topic_id, one.partition_index): one for topic in self.response.responses for one in topic.partitions
        }

    @property
    def only(self) -> Any:
        (one,) = self.partitions.values()
        return one

    @property
    def acquired(self) -> list[tuple[int, int, int]]:
        """First offset, last offset and delivery count of each range, of all partitions."""
        return [
            (batch.first_offset, batch.last_offset, batch.delivery_count)
            for one in self.partitions.values()
            for batch in one.acquired_records
        ]

    @property
    def offsets(self) -> list[int]:
        return [offset for first, last, _ in self.acquired for offset in range(first, last + 1)]

    @property
    def values(self) -> list[bytes]:
        """Of the records that were acquired."""
        return [value for one in self.partitions.values() for value in values_of(one)]

    @property
    def counts(self) -> list[int]:
        """The delivery count of each record."""
        return [count for first, last, count in self.acquired for _ in range(first, last + 1)]


def values_of(partition: Any) -> list[bytes]:
    data = bytes(partition.records or b"")
    held = {
        offset for batch in partition.acquired_records for offset in range(batch.first_offset, batch.last_offset + 1)
    }
    return [
        record.value or b""
        for position, header in split(data)
        if not header.is_control
        for record in decode_records(data, position)
        if record.offset in held
    ]


def acks_of(partitions: Mapping[Place, Ranges], topic: type[Any], partition: type[Any]) -> list[Any]:
    topics: dict[bytes, Any] = {}
    for (topic_id, index), ranges in partitions.items():
        one = topics.setdefault(topic_id, topic(topic_id=topic_id))
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in ranges
        ]
        one.partitions.append(partition(partition_index=index, acknowledgement_batches=batches))
    return list(topics.values())


class Worker:
    def __init__(
        self,
        broker: LocalBroker,
        topic_id: bytes,
        member_id: str = "a",
        *,
        group: str = GROUP,
        partitions: Sequence[int] = (0,),
        connection: ClientConnection | None = None,
    ) -> None:
        self.broker = broker
        self.topic_id = topic_id
        self.member_id = member_id
        self.group = group
        self.places: list[Place] = [(topic_id, index) for index in partitions]
        self.epoch = 0
        self.connection = connection if connection is not None else broker.broker.clients.connect()

    def disconnect(self) -> None:
        self.connection.close()
        self.broker.run_jobs()

    # Fetching

    def fetch_request(
        self,
        acks: Mapping[Place, Ranges] | None = None,
        *,
        epoch: int | None = None,
        forgotten: Sequence[Place] = (),
        places: Sequence[Place] | None = None,
        **fields: Any,
    ) -> ShareFetchRequest:
        epoch = self.epoch if epoch is None else epoch
        named: dict[Place, Ranges] = {}
        if epoch == 0 or places is not None:
            named = dict.fromkeys(self.places if places is None else places, ())
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=acks_of({**named, **(acks or {})}, FetchTopic, FetchPartition),
            forgotten_topics_data=[ForgottenTopic(topic_id=tid, partitions=[index]) for tid, index in forgotten],
            **{**limits, **fields},
        )

    def fetch(
        self, acks: Mapping[Place, Ranges] | None = None, *, epoch: int | None = None, version: int = 2, **fields: Any
    ) -> Delivery:
        request = self.fetch_request(acks, epoch=epoch, **fields)
        response = self.broker.ask(request, version, connection=self.connection)
        self._goes_on(request.share_session_epoch, response.error_code)
        return Delivery(response)

    def begin_fetch(self, acks: Mapping[Place, Ranges] | None = None, **fields: Any) -> "WaitingFetch":
        """A fetch that may wait."""
        request = self.fetch_request(acks, **{"max_wait_ms": 500, **fields})
        waiting = WaitingFetch(self, request)
        self._goes_on(request.share_session_epoch, 0)
        return waiting

    def _goes_on(self, epoch: int, error_code: int) -> None:
        if not error_code:
            self.epoch = 0 if epoch == FINAL else epoch + 1

    def renew(self, *offsets: int, version: int = 2, **fields: Any) -> Delivery:
        """Renews locks by a ShareFetch."""
        nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
        acks = {self.places[0]: [(offset, offset, [RENEW]) for offset in offsets]}
        return self.fetch(acks, version=version, **{"is_renew_ack": True, **nothing, **fields})

    # Acknowledging

    def acknowledge_request(
        self, acks: Mapping[Place, Ranges], *, epoch: int | None = None, **fields: Any
    ) -> ShareAcknowledgeRequest:
        return ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=acks_of(acks, AcknowledgeTopic, AcknowledgePartition),
            **fields,
        )

    def acknowledge_all(
        self, acks: Mapping[Place, Ranges], *, epoch: int | None = None, version: int = 2, **fields: Any
    ) -> Any:
        request = self.acknowledge_request(acks, epoch=epoch, **fields)
        response = self.broker.ask(request, version, connection=self.connection)
        self._goes_on(request.share_session_epoch, response.error_code)
        return response

    def acknowledge(self, *ranges: tuple[int, int, Sequence[int]], **fields: Any) -> int:
        """Returns the error code of the one partition, or that of the request."""
        response = self.acknowledge_all({self.places[0]: ranges}, **fields)
        if response.error_code:
            return int(response.error_code)
        ((one,),) = (topic.partitions for topic in response.responses)
        return int(one.error_code)

    def say(self, kind: int, *offsets: int, **fields: Any) -> int:
        return self.acknowledge(*((offset, offset, [kind]) for offset in offsets), **fields)

    def accept(self, *offsets: int, **fields: Any) -> int:
        return self.say(ACCEPT, *offsets, **fields)

    def release(self, *offsets: int, **fields: Any) -> int:
        return self.say(RELEASE, *offsets, **fields)

    def reject(self, *offsets: int, **fields: Any) -> int:
        return self.say(REJECT, *offsets, **fields)

    def skip(self, *offsets: int, **fields: Any) -> int:
        return self.say(GAP, *offsets, **fields)

    def leave(self, acks: Mapping[Place, Ranges] | None = None) -> Any:
        """Ends the session."""
        return self.acknowledge_all(acks or {}, epoch=FINAL)


class WaitingFetch:
    """A ShareFetch that was sent, and whose response may not be there yet."""

    def __init__(self, worker: Worker, request: ShareFetchRequest) -> None:
        self._broker = worker.broker
        answer = self._broker.begin(request, 2, connection=worker.connection)
        self.delayed = answer if isinstance(answer, DelayedResponse) else None
        self._answers = resolved(answer) if self.delayed is not None else [answer]
        self._delivery: Delivery | None = None

    @property
    def is_answered(self) -> bool:
        return bool(self._answers)

    @property
    def delivery(self) -> Delivery:
        assert self._answers, "there is no response yet"
        if self._delivery is None:
            self._delivery = Delivery(self._broker.decode(self._answers[0], ShareFetchRequest, 2))
        return self._delivery

    def expire(self) -> Delivery:
        assert self.delayed is not None
        self.delayed.expire()
        self._broker.run_jobs()
        return self.delivery


def begin_group(
    broker: LocalBroker, topic_id: bytes, partitions: Sequence[int] = (0,), group: str = GROUP, **configs: str
) -> None:
    """Gives a group a state, as its first member would. A config is written with underscores for its dots."""
    set_configs(broker, group, **{"share_auto_offset_reset": "earliest", **configs})
    queues = broker.broker.queues
    queues.tell_time(broker.now_ms, broker.steady_ms)
    queues.initialize(group, topic_id, partitions, 1)
    broker.run_jobs()


def set_configs(broker: LocalBroker, group: str = GROUP, **configs: str) -> None:
    from tailrace.broker.metadata.records import ConfigChanged
    from tailrace.broker.metadata.state import GROUP_RESOURCE

    changes = [
        ConfigChanged(resource_type=GROUP_RESOURCE, resource_name=group, key=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    broker.broker.metadata_log.write(changes, broker.now_ms)
    broker.run_jobs()
