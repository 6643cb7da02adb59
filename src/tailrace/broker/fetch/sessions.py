"""Fetch sessions (KIP-227): remember what a client fetches, so that a request names only what changed.

    (0, -1)      no session: the request says all
    (any, 0)     the request says all, and a session begins, if there is room; the session before it ends
    (id, n)      the n-th request of a session, n = 1, 2, …: what it names is added or changed, and what it forgets goes
    (id, -1)     the session ends, and the request says all

An answer in a session speaks only of partitions with something new: records, an error, another high watermark or start.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from tailrace.broker.core.api import ELEMENTS_MAX
from tailrace.broker.core.errors import Refused
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fetch_wire import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, epoch_after
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

BUSY_MS = 120_000  # a session used since then is not given up for a new one
PARTITIONS_MAX = ELEMENTS_MAX // 2  # of one session: it can follow no more than one Fetch can name

TopicKey = bytes | str  # the id, or in older versions the name
RequestedPartition = tuple[TopicKey, FetchPartition]


class FetchSession:
    """What one client follows, in the order in which it is served."""

    def __init__(self, session_id: int, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = (
            INITIAL_EPOCH + 1
        )  # of the next request; while it is handed off, of the first that the helper serves
        self.is_handed_off = False
        self.used_ms = 0
        self._wanted: OrderedDict[tuple[TopicKey, int], FetchPartition] = OrderedDict()
        self._told: dict[tuple[TopicKey, int], tuple[int, int]] = {}

    @property
    def is_new(self) -> bool:
        """Whether no request but the one that began it has come yet."""
        return self.epoch == INITIAL_EPOCH + 1

    def follow(self, wanted: Iterable[RequestedPartition]) -> None:
        for topic, partition in wanted:
            self._wanted[topic, partition.partition] = partition

    def __len__(self) -> int:
        return len(self._wanted)

    def forget(self, topic: TopicKey, indexes: Iterable[int]) -> None:
        for index in indexes:
            self._wanted.pop((topic, index), None)
            self._told.pop((topic, index), None)

    def follows_only(self, topic: TopicKey, index: int) -> bool:
        return len(self._wanted) == 1 and (topic, index) in self._wanted

    def repeated(self, topic: TopicKey, partition: FetchPartition, high_watermark: int, start: int) -> None:
        """The only partition that it follows was asked for, and there are records: what `follow` and `is_news` make of
        that, in short.
        """
        key = (topic, partition.partition)
        self._wanted[key] = partition
        self._told[key] = (high_watermark, start)

    @property
    def wanted(self) -> list[RequestedPartition]:
        return [(topic, partition) for (topic, _), partition in self._wanted.items()]

    def is_news(self, topic: TopicKey, answer: PartitionData, length: int) -> bool:
        """Whether the client must be told. If so it counts as told, and a partition that had records is served last
        the next time, so that none starves.
        """
        key = (topic, answer.partition_index)
        bounds = (answer.high_watermark, answer.log_start_offset)
        is_quiet = not length and not answer.error_code and answer.diverging_epoch is None
        if is_quiet and self._told.get(key) == bounds:
            return False
        if answer.error_code:
            self._told.pop(key, None)
        else:
            self._told[key] = bounds
        if length and key in self._wanted:
            self._wanted.move_to_end(key)
        return True


class FetchSessions:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def plan(
        self, request: FetchRequest, by_id: bool, now_ms: int, random_bytes: Callable[[int], bytes]
    ) -> tuple[list[RequestedPartition], FetchSession | None]:
        """What the request asks for, and the session it belongs to. Raises Refused where that session is not known."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            wanted = list(requested_partitions(request, by_id))
            if request.session_epoch == FINAL_EPOCH:
                return wanted, None
            return wanted, self._begin(wanted, by_id, now_ms, random_bytes)
        session = self._require(request, by_id)
        self.advance(session, now_ms)
        session.follow(requested_partitions(request, by_id))
        for forgotten in request.forgotten_topics_data:
            session.forget(forgotten.topic_id if by_id else forgotten.topic, forgotten.partitions)
        if len(session) > PARTITIONS_MAX:
            del self._sessions[session.session_id]
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"a session has at most {PARTITIONS_MAX} partitions")
        return session.wanted, session

    def _require(self, request: FetchRequest, by_id: bool) -> FetchSession:
        session = self.find(request.session_id)
        if session is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if session.by_id != by_id:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session goes by topic ids, or by names")
        if session.is_handed_off:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "another connection has requests of this session")
        if session.epoch != request.session_epoch:
            raise Refused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {request.session_epoch} where {session.epoch} is next"
            )
        return session

    def advance(self, session: FetchSession, now_ms: int) -> None:
        """Its next request has come."""
        session.epoch = epoch_after(session.epoch)
        self._used(session, now_ms)

    def hand_off(self, session: FetchSession, now_ms: int) -> None:
        """A helper process serves its next requests, until it is taken back. Its epoch is not known meanwhile."""
        session.is_handed_off = True
        self._used(session, now_ms)

    def take_back(self, session: FetchSession, epoch: int, now_ms: int) -> bool:
        """Its requests before that epoch have come. False where it has ended meanwhile."""
        if self.find(session.session_id) is not session:
            return False
        session.is_handed_off, session.epoch = False, epoch
        self._used(session, now_ms)
        return True

    def _used(self, session: FetchSession, now_ms: int) -> None:
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)

    def _begin(
        self, wanted: list[RequestedPartition], by_id: bool, now_ms: int, random_bytes: Callable[[int], bytes]
    ) -> FetchSession | None:
        """None where all slots are taken by sessions in use: the client then says all each time."""
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or 0 <= now_ms - oldest.used_ms < BUSY_MS:  # if not, the clock may have been put back
                return None
            del self._sessions[oldest.session_id]
        session = FetchSession(self._new_id(random_bytes), by_id)
        session.used_ms = now_ms
        session.follow(wanted)
        self._sessions[session.session_id] = session
        return session

    def _new_id(self, random_bytes: Callable[[int], bytes]) -> int:
        while True:
            session_id = int.from_bytes(random_bytes(4)) & 0x7FFFFFFF
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id


def requested_partitions(request: FetchRequest, by_id: bool) -> Iterable[RequestedPartition]:
    for topic in request.topics:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield key, partition
