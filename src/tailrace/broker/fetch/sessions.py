"""Fetch sessions (KIP-227): remember what a client fetches, so that a request names only what changed.

    (0, -1)      no session: the request is complete
    (any, 0)     the request is complete, and a session begins, if there is room; the previous session ends
    (id, n)      the n-th request of a session, n = 1, 2, …: its partitions are added or changed, or forgotten
    (id, -1)     the session ends, and the request is complete

A response in a session lists only partitions with news: records, an error, another high watermark or start offset.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from tailrace.broker.core.api import ELEMENTS_MAX
from tailrace.broker.core.errors import Refused
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fetch_wire import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, epoch_after
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

BUSY_MS = 120_000  # a session used more recently is not evicted
PARTITIONS_MAX = ELEMENTS_MAX // 2  # of one session: no more than one Fetch can name

TopicKey = bytes | str  # topic id, or in older versions the name
RequestedPartition = tuple[TopicKey, FetchPartition]


class FetchSession:
    """The partitions that one client fetches, in the order in which they are served."""

    def __init__(self, session_id: int, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = (
            INITIAL_EPOCH + 1
        )  # epoch of the next request; while handed off, of the first that the helper serves
        self.is_handed_off = False
        self.used_ms = 0
        self._wanted: OrderedDict[tuple[TopicKey, int], FetchPartition] = OrderedDict()
        self._told: dict[tuple[TopicKey, int], tuple[int, int]] = {}

    @property
    def is_new(self) -> bool:
        """Whether it has served only the request that began it."""
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
        """The fast path of `follow` and `is_news` for a session with one partition, which was fetched again and has
        records.
        """
        key = (topic, partition.partition)
        self._wanted[key] = partition
        self._told[key] = (high_watermark, start)

    @property
    def wanted(self) -> list[RequestedPartition]:
        return [(topic, partition) for (topic, _), partition in self._wanted.items()]

    def is_news(self, topic: TopicKey, answer: PartitionData, length: int) -> bool:
        """Whether the response must include the partition. If so, its state counts as sent. A partition with records is
        served last the next time, so that none starves.
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
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def plan(
        self, request: FetchRequest, by_id: bool, now_ms: int, random_bytes: Callable[[int], bytes]
    ) -> tuple[list[RequestedPartition], FetchSession | None]:
        """Returns the partitions to fetch, and the session of the request. Raises Refused for an unknown session."""
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
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"unknown fetch session {request.session_id}")
        if session.by_id != by_id:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session uses either topic ids or names")
        if session.is_handed_off:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "another connection uses this session")
        if session.epoch != request.session_epoch:
            raise Refused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {request.session_epoch}, expected {session.epoch}"
            )
        return session

    def advance(self, session: FetchSession, now_ms: int) -> None:
        """Moves to the epoch of the next request."""
        session.epoch = epoch_after(session.epoch)
        self._used(session, now_ms)

    def hand_off(self, session: FetchSession, now_ms: int) -> None:
        """Marks the session as handed off: until it is taken back, a helper process serves it, and its epoch is
        unknown.
        """
        session.is_handed_off = True
        self._used(session, now_ms)

    def take_back(self, session: FetchSession, epoch: int, now_ms: int) -> bool:
        """Continues the session at `epoch`. Returns False if it has ended meanwhile."""
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
        """None if all slots are taken by sessions in use: the client then sends complete requests."""
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or 0 <= now_ms - oldest.used_ms < BUSY_MS:  # if not, the clock may have been set back
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
