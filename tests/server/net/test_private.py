"""The private listener: SASL/PLAIN with the token, and nothing before it."""

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from brokers import a_batch, produce_request
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from nodes import RunningNode
from raw_client import RawClient

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tailrace.server.net import private
from tailrace.server.net.listener import Listener, bind
from tailrace.server.net.private import FRAME_BYTES_MAX, USER, PrivateConnection, is_valid
from tailrace.server.node import CHILDREN

TOKEN = "the token"


class PrivateNode(RunningNode):
    def open(self) -> tuple[str, int]:
        """Opens a private listener."""
        (sock,) = bind("127.0.0.1", 0, ExitStack())
        self.private = Listener(self.node, sock, None, partial(PrivateConnection, token=TOKEN), counted_as=CHILDREN)
        self.node.listeners.append(self.private)  # closed with the others
        return self.private.host, self.private.port


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PrivateNode]:
    with PrivateNode(tmp_path) as running:
        running.create_topic()
        yield running


@pytest.fixture
def address(node: PrivateNode) -> tuple[str, int]:
    return node.on_loop(node.open)


def properties(address: tuple[str, int], password: str = TOKEN, mechanism: str = "PLAIN") -> dict[str, str | int]:
    return {
        "bootstrap.servers": "{}:{}".format(*address),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def plain(password: str = TOKEN, user: str = USER) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())


def authenticate(client: RawClient) -> None:
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert client.ask(plain(), 2).error_code == 0


def test_a_kafka_client_with_the_token_writes_and_reads(address: tuple[str, int]) -> None:
    producer = Producer(properties(address))
    producer.produce("orders", b"one")
    assert producer.flush(20) == 0
    consumer = Consumer(properties(address) | {"group.id": "billing", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"one"
    finally:
        consumer.close()


@pytest.mark.parametrize(("password", "mechanism"), [("wrong", "PLAIN"), (TOKEN, "SCRAM-SHA-256")])
def test_a_kafka_client_without_the_token_gets_nothing(address: tuple[str, int], password: str, mechanism: str) -> None:
    errors: list[KafkaError] = []
    admin = AdminClient(properties(address, password, mechanism) | {"error_cb": errors.append, "log_level": 0})  # type: ignore[arg-type]
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    admin.poll(1)
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}


def test_metadata_and_coordinators_name_the_private_port(node: PrivateNode, address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        authenticate(client)
        brokers = client.ask(MetadataRequest(topics=[]), 12).brokers
        assert [(one.host, one.port) for one in brokers] == [address]
        found = client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
        assert (found.host, found.port) == address
    with RawClient(node.address) as client:
        assert client.ask(MetadataRequest(topics=[]), 12).brokers[0].port == node.address[1]


def test_a_wrong_password_is_answered_with_an_error_and_the_end_of_the_connection(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = client.ask(plain("wrong"), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)


def test_nothing_is_served_before_authentication(node: PrivateNode, address: tuple[str, int]) -> None:
    for request, version in ((MetadataRequest(topics=None), 12), (produce_request(a_batch(b"a")), 12)):
        with RawClient(address) as client:
            assert client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).api_keys
            with pytest.raises(ConnectionError):
                client.ask(request, version)


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.CREATE_TOPICS, 99])
def test_the_head_of_a_request_ends_the_connection_before_its_bytes_arrive(address: tuple[str, int], key: int) -> None:
    with RawClient(address) as client:
        client.send_frame(struct.pack(">ih", 1 << 20, key) + bytes(8))
        with pytest.raises(ConnectionError):
            client.receive_frame()


@pytest.mark.parametrize("key", [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_frames_before_authentication_are_small(address: tuple[str, int], key: int) -> None:
    with RawClient(address) as client:
        client.send_frame(struct.pack(">ih", FRAME_BYTES_MAX + 1, key) + bytes(8))
        with pytest.raises(ConnectionError):
            client.receive_frame()


def test_a_request_sent_along_with_the_handshake_is_not_served(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.send(MetadataRequest(topics=None), 12)
        with pytest.raises(ConnectionError):  # with the response to the handshake, or without
            client.receive_bytes(1000)


def test_large_requests_are_served_after_authentication(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        authenticate(client)
        answer = client.ask(produce_request(a_batch(bytes(500_000), now_ms=int(time.time() * 1000))), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_steps_out_of_order_are_refused(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        assert client.ask(plain(), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
        unsupported = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert unsupported.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert unsupported.mechanisms == ["PLAIN"]
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == ErrorCode.UNSUPPORTED_VERSION
        authenticate(client)
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(plain("wrong"), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(MetadataRequest(topics=[]), 12).brokers  # it is still authenticated


def test_a_client_that_does_not_authenticate_is_disconnected(
    node: PrivateNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "PATIENCE_S", 0.05)
    with RawClient(node.on_loop(node.open)) as client, pytest.raises(ConnectionError):
        client.receive_frame()


def test_child_processes_take_no_connection_from_clients(tmp_path: Path) -> None:
    with PrivateNode(tmp_path, {"max.connections": "1"}) as node:
        private = node.on_loop(node.open)
        with RawClient(private) as one, RawClient(private) as other, RawClient(node.address) as client:
            authenticate(one)
            authenticate(other)
            assert client.ask(MetadataRequest(topics=[]), 12).brokers


def test_listeners_of_clients_have_no_authentication(node: PrivateNode) -> None:
    with RawClient(node.address) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(plain(), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(MetadataRequest(topics=[]), 12).brokers


@pytest.mark.parametrize(
    ("said", "accepted"),
    [
        (b"\0tailrace-internal\0the token", True),
        (b"someone\0tailrace-internal\0the token", True),  # as an authorization id, which PLAIN may have
        (b"\0tailrace-internal\0the toke", False),
        (b"\0other\0the token", False),
        (b"tailrace-internal\0the token", False),
        (b"", False),
        (b"\xff\0\xfe\0\xfd", False),
    ],
)
def test_only_the_internal_user_with_the_token_is_valid(said: bytes, accepted: bool) -> None:
    assert is_valid(said, TOKEN) is accepted
