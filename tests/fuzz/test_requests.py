"""Requests that nobody wrote by hand, against a live broker: each is answered, or its connection is closed; nobody else
notices, and nothing happens that nobody foresaw.
"""

import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nodes import RunningNode
from protocol.values import fields_at, full, messages
from raw_client import RawClient, a_produce

from tailrace.broker.apis.registry import APIS
from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.message import specification_of, versions_of
from tailrace.protocol.messages import REQUESTS, RESPONSES
from tailrace.protocol.messages.api_versions import ApiVersionsRequest

EXAMPLES = int(os.environ.get("TAILRACE_FUZZ", "17"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
LAST = 1 << 30  # the correlation id of the request behind the one that is tried

each_api = pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: APIS[key].key.name.lower())

# What a length, a count, a tag or a marker might be replaced with.
HOSTILE = [
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
]


class Target:
    """A node with something in it, and a connection that nobody may disturb."""

    def __init__(self, node: RunningNode, topic_id: bytes) -> None:
        self.node = node
        self.topic_id = topic_id
        self.bystander = RawClient(node.address)
        self.answered = 0

    def try_bytes(self, data: bytes, expected: tuple[int, int] | None = None, *, is_whole: bool = True) -> None:
        """Sends them, and a request behind them; `expected` are the key and version of the answer, if one comes. Where
        it may be a part of a request, which the rest could follow, we hang up.
        """
        behind = encode_request(ApiVersionsRequest(), 3, LAST, None)
        with RawClient(self.node.address, timeout_s=10) as client:
            try:
                client.socket.sendall(data)
                client.socket.sendall(behind)
                if not is_whole:
                    client.socket.shutdown(socket.SHUT_WR)
                while (frame := client.receive_frame())[:4] != struct.pack(">i", LAST):
                    if expected is not None:
                        decode_response(RESPONSES[expected[0]], expected[1], frame)
                        self.answered += 1
            except TimeoutError:
                pytest.fail("neither answered nor closed")
            except OSError:
                pass  # it was closed
        assert self.bystander.ask(ApiVersionsRequest(), 3).error_code == 0

    def check(self, caplog: pytest.LogCaptureFixture) -> None:
        surprises = [record.exc_info for record in caplog.records if record.levelno >= logging.ERROR]
        assert not surprises, surprises[0]
        assert not self.node.errors


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    path: Path = tmp_path_factory.mktemp("fuzz")
    configs = {"delete.topic.enable": "false", "group.min.session.timeout.ms": "1"}
    with RunningNode(path, configs) as node:
        target = Target(node, node.create_topic("orders", 3))
        target.bystander.produce(b"one", b"two")
        yield target
        target.bystander.close()


def aimed(message: Any, version: int, target: Target) -> Any:
    """The same message, about what there is: half of its names, ids and numbers are those of our topic."""
    for name, field in fields_at(type(message), version).items():
        value = getattr(message, name)
        if field.kind == "string" and isinstance(value, str) and len(value) % 2:
            setattr(message, name, "orders")
        elif field.kind == "uuid" and value[0] % 2:
            setattr(message, name, target.topic_id)
        elif field.kind == "array" and isinstance(field.of, type):
            for element in value or ():
                aimed(element, version, target)
        elif field.kind == "nested" and value is not None:
            aimed(value, version, target)
        elif name in ("partition", "partition_index", "index", "acks", "max_wait_ms", "timeout_ms"):
            setattr(message, name, value % 5 - 1)
        elif name in ("session_timeout_ms", "rebalance_timeout_ms"):
            setattr(message, name, value % 1000)  # a member of an earlier example is gone, and is waited for
        elif "count" in name or name == "num_partitions":
            setattr(message, name, min(value, 3))  # a topic may have many: that is no bug, and takes long
    return message


def a_version(data: st.DataObject, key: int) -> int:
    versions = versions_of(REQUESTS[key])  # type: ignore[index]
    return data.draw(st.integers(versions.first, versions.last), "version")


def well_formed(data: st.DataObject, key: int, target: Target) -> tuple[bytes, int]:
    version = a_version(data, key)
    message = aimed(data.draw(messages(REQUESTS[key], version)), version, target)  # type: ignore[index]
    return encode_request(message, version, 1, "fuzz"), version


@each_api
@FUZZ
@given(data=st.data())
def test_any_request(key: int, data: st.DataObject, target: Target, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    frame, version = well_formed(data, key, target)
    target.try_bytes(frame, (key, version))
    target.check(caplog)


@each_api
@FUZZ
@given(data=st.data())
def test_a_request_with_bytes_replaced(
    key: int, data: st.DataObject, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    frame, _ = well_formed(data, key, target)
    changed = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(4, len(changed) - 1))
        other = data.draw(st.sampled_from(HOSTILE) | st.binary(min_size=1, max_size=4))
        changed[position : position + len(other)] = other
    changed[:4] = struct.pack(">i", len(changed) - 4)
    target.try_bytes(bytes(changed))
    target.check(caplog)


@each_api
@FUZZ
@given(data=st.data())
def test_a_request_of_another_length_than_it_says(
    key: int, data: st.DataObject, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    frame, _ = well_formed(data, key, target)
    kept = data.draw(st.integers(0, len(frame)))
    length = data.draw(
        st.sampled_from([kept - 4, len(frame) - 4, len(frame) + 100, 0, 7, 8, -1, 1 << 27, (1 << 31) - 1])
    )
    target.try_bytes(struct.pack(">i", max(-1, length)) + frame[4:kept], is_whole=False)
    target.check(caplog)


@each_api
def test_each_version_cut_anywhere(key: int, target: Target, caplog: pytest.LogCaptureFixture) -> None:
    """A request that ends early but says so."""
    caplog.clear()
    request = REQUESTS[key]  # type: ignore[index]
    for version in (versions_of(request).first, versions_of(request).last):
        whole = encode_request(aimed(full(request, version), version, target), version, 1, "fuzz")
        for end in range(12, len(whole), max(1, len(whole) // 25)):
            target.try_bytes(struct.pack(">i", end - 4) + whole[4:end])
    target.check(caplog)


@FUZZ
@given(data=st.binary(max_size=200))
def test_any_bytes(data: bytes, target: Target, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    target.try_bytes(data, is_whole=False)
    target.check(caplog)


@FUZZ
@given(data=st.data())
def test_any_records(data: st.DataObject, target: Target, caplog: pytest.LogCaptureFixture) -> None:
    """Produce: batches with bytes replaced, cut, or none at all."""
    caplog.clear()
    request = a_produce(*data.draw(st.lists(st.binary(max_size=50), min_size=1, max_size=5)))
    records = bytearray(request.topic_data[0].partition_data[0].records)
    position = data.draw(st.integers(0, len(records) - 1))
    other = data.draw(st.sampled_from(HOSTILE) | st.binary(min_size=1, max_size=4))
    records[position : position + len(other)] = other
    request.topic_data[0].partition_data[0].records = bytes(records[: data.draw(st.integers(0, len(records)))])
    request.acks = data.draw(st.sampled_from([-1, 0, 1]))
    key = specification_of(type(request)).key
    assert key is not None
    target.try_bytes(encode_request(request, 12, 1, "fuzz"), (key, 12))
    target.check(caplog)


def test_most_of_them_are_answered(target: Target) -> None:
    """Or the others test nothing. Last in this file, where files are read in order."""
    target.try_bytes(encode_request(ApiVersionsRequest(), 3, 1, None), (18, 3))
    assert target.answered > 0
