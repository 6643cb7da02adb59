"""A broker that says what a test tells it to: errors, lies, and bytes that are no answer.

    fake.answers[MetadataRequest] = lambda request, version: MetadataResponse(…)
    fake.answers[FetchRequest] = lambda request, version: HANG_UP

It leads every partition of `fake.topics`, or those that `fake.leaders` says, and holds their batches in memory.
"""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Any

from tailrace.protocol.codec import decode, encode
from tailrace.protocol.errors import Malformed
from tailrace.protocol.message import is_flexible, specification_of, versions_of
from tailrace.protocol.messages import REQUESTS
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.end_txn import EndTxnRequest
from tailrace.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tailrace.records.batch import read_header

HANG_UP = object()
SILENCE = object()
KINDS = {
    **REQUESTS,
    24: AddPartitionsToTxnRequest,
    25: AddOffsetsToTxnRequest,
    26: EndTxnRequest,
    28: TxnOffsetCommitRequest,
}
Handler = Callable[[Any, int], Any]


class FakeBroker:
    def __init__(self, of: "FakeBroker | None" = None, context: ssl.SSLContext | None = None) -> None:
        """Another broker of the cluster `of`, or the first of one of its own."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._context = context
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.asked: list[tuple[type[Any], int]] = []
        self.nodes: list[FakeBroker] = of.nodes if of else []
        self.node_id = len(self.nodes)
        self.nodes.append(self)
        self.topics: dict[str, list[list[bytearray]]] = of.topics if of else {"orders": [[]]}
        self.topic_id: bytes = b"the id of topics"
        self.leaders: dict[tuple[str, int], int] = of.leaders if of else {}
        self.versions = {key: (versions_of(kind).first, versions_of(kind).last) for key, kind in KINDS.items()}
        self.answers: dict[type[Any], Handler] = {
            ApiVersionsRequest: lambda request, version: self.api_versions(),
            MetadataRequest: lambda request, version: self.metadata(request),
            FetchRequest: lambda request, version: self.fetch(request),
            ListOffsetsRequest: lambda request, version: self.list_offsets(request),
        }
        self._run(self._accept)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for opened in self._open:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def count(self, kind: type[Any]) -> int:
        return sum(asked is kind for asked, _ in self.asked)

    def _run(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self._run(self._serve, accepted)

    def _serve(self, accepted: socket.socket) -> None:
        with (
            accepted,
            contextlib.suppress(OSError, struct.error, KeyError, Malformed),
        ):  # what is no request ends it, too
            connection = self._context.wrap_socket(accepted, server_side=True) if self._context else accepted
            self._open.append(connection)
            with connection, connection.makefile("rb") as requests:
                while self._answer(connection, requests):
                    pass

    def _answer(self, connection: socket.socket, requests: Any) -> bool:
        (length,) = struct.unpack(">i", requests.read(4))
        frame = requests.read(length)
        key, version, correlation_id, name = struct.unpack_from(">hhih", frame)
        kind = KINDS[key]
        self.asked.append((kind, version))
        body = 10 + max(0, name) + is_flexible(kind, version)
        request: Any = decode(kind, version, frame, body)
        answer = self.answers[kind](request, version)
        if answer is HANG_UP:
            return False
        if answer is not SILENCE:
            connection.sendall(answer if isinstance(answer, bytes) else a_frame(answer, version, correlation_id))
        return True

    # What an honest one says

    def api_versions(self) -> ApiVersionsResponse:
        offered = [
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(api_keys=offered)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        brokers = [MetadataResponseBroker(node_id=n.node_id, host="127.0.0.1", port=n.port) for n in self.nodes]
        return MetadataResponse(brokers=brokers, topics=[self._topic(name) for name in names])

    def _topic(self, name: str | None) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        partitions = [
            MetadataResponsePartition(partition_index=n, leader_id=self.leaders.get((name, n), 0), leader_epoch=7)
            for n in range(len(self.topics[name]))
        ]
        return MetadataResponseTopic(name=name, topic_id=self.topic_id, partitions=partitions)

    def end(self, topic: str, partition: int) -> int:
        batches = self.topics[topic][partition]
        return read_header(batches[-1]).next_offset if batches else 0

    def fetch(self, request: FetchRequest, **fields: Any) -> FetchResponse:
        """Of the first topic; whole batches from the offset on, as many as there are. It never waits."""
        answered = []
        for topic in request.topics:
            name = topic.topic or "orders"
            partitions = [self._fetched(name, one.partition, one.fetch_offset, **fields) for one in topic.partitions]
            answered.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        return FetchResponse(responses=answered)

    def _fetched(self, topic: str, partition: int, offset: int, **fields: Any) -> PartitionData:
        batches = [batch for batch in self.topics[topic][partition] if read_header(batch).last_offset >= offset]
        end = self.end(topic, partition)
        values = {"high_watermark": end, "last_stable_offset": end, "records": b"".join(batches)}
        return PartitionData(partition_index=partition, **{**values, **fields})

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        def found(topic: str, partition: Any) -> ListOffsetsPartitionResponse:
            offset = self.end(topic, partition.partition_index) if partition.timestamp == -1 else 0
            return ListOffsetsPartitionResponse(partition_index=partition.partition_index, offset=offset)

        topics = [
            ListOffsetsTopicResponse(name=topic.name, partitions=[found(topic.name, one) for one in topic.partitions])
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)


def a_frame(answer: Any, version: int, correlation_id: int) -> bytes:
    kind = type(answer)
    has_tags = is_flexible(kind, version) and specification_of(kind).key != 18
    body = struct.pack(">i", correlation_id) + bytes(has_tags) + encode(answer, version)
    return struct.pack(">i", len(body)) + body


def once(*handlers: Handler) -> Handler:
    """Each of these for one request, the last one for all that follow."""
    left = list(handlers)
    return lambda request, version: (left.pop(0) if len(left) > 1 else left[0])(request, version)
