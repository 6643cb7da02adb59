"""ShareFetch (key 78): acquires records for a member of a share group, and acknowledges those acquired before.

Behaviour: a request carries the acknowledgements of earlier records, like ShareAcknowledge, and waits for records that
no other member holds: for `min_bytes` of them, at most for `max_wait_ms`. The response has whole batches as they lie in
the log, and names the records in them that the member holds now, each with the number of this delivery. It is sent when
the acknowledgements are on disk. Acquired records are locked for a time, and count as delivered again if the member
does not acknowledge them until then, or its connection is lost.

Versions 1-2.
    2   `max_records` may be a strict limit, and locks can be renewed
Not done: hints at other leaders, as there is one replica.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.queues.delivery.acknowledgements import (
    Acknowledgements,
    acknowledge,
    batches_by_place,
    lock_ms_of,
    member_of,
)
from tailrace.broker.queues.delivery.fetches import Limits, ShareFetch, response_of
from tailrace.broker.queues.delivery.sessions import PARTITIONS_MAX, Member, ShareSession
from tailrace.broker.queues.names import TopicPartitionId
from tailrace.broker.queues.partition.states import AckBatch
from tailrace.broker.quotas.client_quotas import ANONYMOUS, CONSUMER_BYTE_RATE
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fetch_wire import FINAL_EPOCH, INITIAL_EPOCH
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.share_fetch import RECORD_LIMIT, ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

FRAME_BYTES_MAX = 2 << 20
ELEMENTS_MAX = 50_000  # 60 ms, if all are ranges of one record


def share_fetch(
    request: ShareFetchRequest, call: Call, broker: "Broker"
) -> ShareFetchResponse | DelayedResponse[ShareFetchResponse]:
    queues = broker.queues
    try:
        queues.tell_time(call.now_ms, call.steady_ms)
        if queues.loading.is_under_way:
            return FetchWhenLoaded(request, call, broker)
        queues.loading.require_done()
        member = member_of(request.group_id, request.member_id)
        batches = batches_by_place(request.topics)
        _check(request, batches)
        session, told = _session(request, member, list(batches), call, broker)
    except Refused as error:
        response = ShareFetchResponse(error_code=error.code, error_message=error.message)
        is_full = error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        return LateRefusal(response, request.max_wait_ms) if is_full else response
    given = Acknowledgements(
        {place: found for place, found in batches.items() if found},
        request.is_renew_ack,
        lock_ms_of(request.lock_duration_ms),
    )
    told |= acknowledge(given, member, broker)
    if request.share_session_epoch == FINAL_EPOCH:
        queues.sessions.close(session)
        return queues.when_safe(response_of(told, queues.settings_of(member.group).lock_ms))
    fetch = ShareFetch(_limits(request, call, broker), session, told, call, broker)
    fetch.start(queues.log.unflushed() if given.batches else ())
    return fetch


def _check(request: ShareFetchRequest, batches: Mapping[TopicPartitionId, list[AckBatch]]) -> None:
    """Raises Refused."""
    if request.share_session_epoch == INITIAL_EPOCH and any(batches.values()):
        raise Refused(ErrorCode.INVALID_REQUEST, "the first request of a session has nothing to acknowledge")
    limits = request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records
    if request.is_renew_ack and any(limits):
        raise Refused(ErrorCode.INVALID_REQUEST, "a request that renews locks fetches nothing")


def _session(
    request: ShareFetchRequest, member: Member, named: list[TopicPartitionId], call: Call, broker: "Broker"
) -> tuple[ShareSession, dict[TopicPartitionId, Refused | None]]:
    """Returns the session of the request, and the partitions that are new in it. Raises Refused."""
    sessions, epoch = broker.queues.sessions, request.share_session_epoch
    if epoch == FINAL_EPOCH:
        return sessions.finish(member), {}
    if epoch == INITIAL_EPOCH:
        session = sessions.begin(member, call.connection)
    else:
        session = sessions.go_on(member, epoch, call.connection)
    added: dict[TopicPartitionId, Refused | None] = {place: None for place in named if place not in session.partitions}
    session.partitions.update(dict.fromkeys(named))
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.partitions.pop((forgotten.topic_id, index), None)
            added.pop((forgotten.topic_id, index), None)
    if len(session.partitions) > PARTITIONS_MAX:
        sessions.close(session)
        raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, f"a session has at most {PARTITIONS_MAX} partitions")
    return session, added


def _limits(request: ShareFetchRequest, call: Call, broker: "Broker") -> Limits:
    bytes_max = min(max(request.max_bytes, 0), broker.fetch_bytes_max)
    if broker.quotas.quotas.values:  # no more than the quota allows at once
        allowed = broker.quotas.at_once(CONSUMER_BYTE_RATE, ANONYMOUS, call.client_id or "")
        bytes_max = int(min(bytes_max, max(1, allowed)))
    return Limits(
        wait_ms=request.max_wait_ms,
        bytes_min=min(request.min_bytes, bytes_max),
        bytes_max=bytes_max,
        records_max=request.max_records,
        batch_size=request.batch_size,
        is_strict=request.share_acquire_mode == RECORD_LIMIT,
        lock_ms=lock_ms_of(request.lock_duration_ms),
    )


class FetchWhenLoaded(DelayedResponse[ShareFetchResponse]):
    """A request that came before the state of queues was read."""

    __slots__ = ("_fetch", "_is_over")

    def __init__(self, request: ShareFetchRequest, call: Call, broker: "Broker") -> None:
        super().__init__(max(0, request.max_wait_ms))
        self._fetch: DelayedResponse[ShareFetchResponse] | None = None
        self._is_over = False

        def go_on() -> None:
            if not self._is_over:
                answer = share_fetch(request, call, broker)
                self._fetch = answer if isinstance(answer, DelayedResponse) else DelayedResponse.of(answer)
                self._fetch.when_resolved(self.resolve)

        broker.queues.loading.then(go_on)

    def expire(self) -> None:
        if self._fetch is not None:
            self._fetch.expire()
        else:
            self._is_over = True
            self.resolve(ShareFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    def hurry(self) -> None:
        if self._fetch is not None:
            self._fetch.hurry()

    def abandon(self) -> None:
        super().abandon()
        self._is_over = True
        if self._fetch is not None:
            self._fetch.abandon()


class LateRefusal(DelayedResponse[ShareFetchResponse]):
    """A refusal that takes as long as the client would wait for records, or it would ask again at once."""

    __slots__ = ("_response",)

    def __init__(self, response: ShareFetchResponse, wait_ms: int) -> None:
        super().__init__(max(0, wait_ms))
        self._response = response

    def expire(self) -> None:
        self.resolve(self._response)

    def hurry(self) -> None:
        self.expire()


API = Api(ApiKey.SHARE_FETCH, share_fetch, FRAME_BYTES_MAX, ELEMENTS_MAX)
