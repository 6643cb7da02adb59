"""A reader that asks for one partition as a connection does: the short way, and the long way."""

import struct
from typing import Any

from brokers import ENDPOINT, LocalBroker

from tailrace.broker.apis.registry import APIS
from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.fastpath.fetch import FetchFastPath
from tailrace.protocol import codec
from tailrace.protocol.frame import encode_request, read_request_header, response_header
from tailrace.protocol.messages.fetch import FetchRequest


class Reader:
    """Asks as a connection does."""

    def __init__(self, local: LocalBroker) -> None:
        self.local = local
        self.repeated = FetchFastPath(local.broker)
        self.last_id = 0

    def frame(self, request: FetchRequest, version: int) -> memoryview:
        self.last_id += 1
        return memoryview(bytearray(encode_request(request, version, self.last_id, "reader")))[4:]

    def short(self, frame: memoryview) -> bytes | None:
        repeated = self.repeated.read(frame, self.local.now_ms)
        return joined(repeated[1]) if repeated is not None else None

    def long(self, frame: memoryview) -> bytes | None:
        """None where it waits. What it was like is learnt."""
        header = read_request_header(frame)
        request = codec.decode(FetchRequest, header.api_version, frame, header.body)
        call = Call(header.api_version, "reader", ENDPOINT, self.local.now_ms)
        answer = self.local.broker.handle(APIS[1], request, call)
        self.repeated.learn(frame, header, request)
        if isinstance(answer, DelayedResponse):
            self.local.run_jobs()
            found: list[Any] = []
            answer.when_resolved(found.append)
            answer.abandon()
            if not found:
                return None
            (answer,) = found
        parts = codec.encode_parts(answer, header.api_version)
        head = response_header(1, header.api_version, header.correlation_id)
        body = head + joined(parts)
        return struct.pack(">i", len(body)) + body


def joined(parts: list[Any]) -> bytes:
    whole = b""
    for part in parts:
        if hasattr(part, "release"):
            whole += part.read()
            part.release()
        else:
            whole += bytes(part)
    return whole


def key_of(local: LocalBroker, version: int) -> Any:
    return local.broker.metadata.topics["orders"].topic_id if version >= 13 else "orders"
