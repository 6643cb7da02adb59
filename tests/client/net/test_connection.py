import base64
import hashlib
import hmac
import random
import socket
import ssl
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from client.conftest import options
from client.fakes import HANG_UP, SILENCE, FakeBroker, a_frame, once

from tailrace.client.errors import (
    AuthenticationFailed,
    BadAnswer,
    BadOption,
    ClientError,
    ConnectionLost,
    NotOffered,
    TlsFailed,
)
from tailrace.client.net.connection import Connection
from tailrace.client.options import ClientOptions
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def soon(seconds: float = 5.0) -> float:
    return time.monotonic() + seconds


def connect(broker: FakeBroker, **properties: str) -> Connection:
    given = options(broker.bootstrap, **properties)
    return Connection(given, given.bootstrap[0], soon())


def ask(connection: Connection, seconds: float = 5.0) -> MetadataResponse:
    return connection.ask(MetadataRequest(topics=[]), MetadataResponse, soon(seconds))


def test_the_latest_version_that_both_speak_is_used(fake: FakeBroker) -> None:
    fake.versions[3] = (0, 9)
    connection = connect(fake)
    ask(connection)
    assert fake.asked[-1] == (MetadataRequest, 9)
    assert connection.version_for(MetadataRequest, at_most=5) == 5
    connection.close()


@pytest.mark.parametrize("offered", [None, (14, 20), (0, 3)])
def test_a_version_that_the_broker_has_not_is_an_error_that_says_so(
    fake: FakeBroker, offered: tuple[int, int] | None
) -> None:
    if offered is None:
        del fake.versions[3]
    else:
        fake.versions[3] = offered
    connection = connect(fake)
    with pytest.raises(NotOffered, match="MetadataRequest"):
        connection.version_for(MetadataRequest, at_least=4)
    connection.close()


@pytest.mark.parametrize("listed", [True, False])
def test_a_broker_that_does_not_know_our_api_versions_is_asked_in_its_own(fake: FakeBroker, listed: bool) -> None:
    def refuse(request: Any, version: int) -> Any:
        if version <= 2 if listed else version == 0:
            return fake.api_versions()
        known = [ApiVersion(api_key=18, min_version=0, max_version=2)] if listed else []
        return a_frame(ApiVersionsResponse(error_code=35, api_keys=known), 0, 1)

    fake.answers[ApiVersionsRequest] = refuse
    connection = connect(fake)
    assert [version for _, version in fake.asked] == [4, 2 if listed else 0]
    ask(connection)
    connection.close()


def test_answers_come_in_the_order_of_the_requests(fake: FakeBroker) -> None:
    connection = connect(fake)
    first = connection.send(MetadataRequest(topics=[]), MetadataResponse, soon())
    second = connection.send(MetadataRequest(topics=None), MetadataResponse, soon())
    assert connection.receive(second, soon()).topics != []
    assert connection.receive(first, soon()).topics == []
    connection.close()


def test_an_answer_that_nobody_waits_for_is_dropped(fake: FakeBroker) -> None:
    connection = connect(fake)
    connection.send(MetadataRequest(topics=[]), MetadataResponse, soon())
    connection.abandon()
    assert ask(connection).topics == []
    assert not connection.is_busy
    assert connection.is_usable
    connection.close()


NO_ANSWERS = {
    "another correlation id": a_frame(MetadataResponse(), 13, 77),
    "no message": struct.pack(">i", 12) + bytes([0, 0, 0, 2, 0]) + b"\xff" * 7,
    "too short": struct.pack(">i", 2) + b"xx",
    "a negative length": struct.pack(">i", -1),
    "a huge length": struct.pack(">i", 0x7FFFFFFF),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "TLS": b"\x15\x03\x03\x00\x02\x02\x50",
    "more than a message": struct.pack(">i", 40) + bytes([0, 0, 0, 2]) + bytes(36),
}


@pytest.mark.parametrize("what", NO_ANSWERS)
def test_what_is_no_answer_closes_the_connection(fake: FakeBroker, what: str) -> None:
    fake.answers[MetadataRequest] = lambda request, version: NO_ANSWERS[what]
    connection = connect(fake)
    with pytest.raises(BadAnswer, match=r"check host, port, security\.protocol"):
        ask(connection)
    assert connection.is_closed


@pytest.mark.parametrize(
    "answer",
    [HANG_UP, struct.pack(">i", 1000) + b"half", struct.pack(">i", 900 << 20) + b"x"],
    ids=["end", "half", "huge"],
)
def test_a_broker_that_goes_away_is_a_connection_lost(fake: FakeBroker, answer: Any) -> None:
    fake.answers[MetadataRequest] = once(lambda request, version: answer, lambda request, version: HANG_UP)
    connection = connect(fake)
    first = connection.send(MetadataRequest(), MetadataResponse, soon())
    if answer is not HANG_UP:
        connection.send(MetadataRequest(), MetadataResponse, soon())
    with pytest.raises(ConnectionLost, match="closed by the broker"):
        connection.receive(first, soon())
    assert connection.is_closed


def test_a_broker_that_does_not_answer_is_waited_for_until_the_deadline(fake: FakeBroker) -> None:
    fake.answers[MetadataRequest] = lambda request, version: SILENCE
    connection = connect(fake)
    before = time.monotonic()
    with pytest.raises(ConnectionLost, match="no response in time"):
        ask(connection, 0.2)
    assert 0.15 < time.monotonic() - before < 20
    assert connection.is_closed


def test_answers_with_wrong_bytes_raise_what_is_ours_or_nothing(fake: FakeBroker) -> None:
    rng = random.Random(7)
    good = a_frame(fake.metadata(MetadataRequest(topics=None)), 13, 2)

    def damaged(request: Any, version: int) -> bytes:
        frame = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            frame[rng.randrange(4, len(frame))] = rng.randrange(256)
        return bytes(frame)

    fake.answers[MetadataRequest] = damaged
    refused = 0
    for _ in range(100):
        connection = connect(fake)
        try:
            ask(connection)
        except BadAnswer:
            refused += 1
            assert connection.is_closed
        connection.close()
    assert 20 < refused < 100


@pytest.mark.parametrize(("host", "port"), [("x" * 70, 9092), ("a\0b", 9092), ("", -1), ("127.0.0.1", 99_999)])
def test_what_is_no_address_cannot_be_connected_to(host: str, port: int) -> None:
    with pytest.raises(ConnectionLost):
        Connection(ClientOptions(((host, port),)), (host, port), soon())


def test_nobody_there_is_a_connection_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(ConnectionLost, match=r"cannot connect: .*refused"):
        Connection(ClientOptions((address,)), address, soon())


# SASL


class Authenticator:
    """The broker's side of SCRAM-SHA-256, for user `me` with password `secret`."""

    def __init__(self, password: bytes = b"secret", lies: bool = False) -> None:
        self.salted = hashlib.pbkdf2_hmac("sha256", password, b"salt", 4096)
        self.lies = lies
        self.said: list[str] = []

    def __call__(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        text = request.auth_bytes.decode()
        if not self.said:
            bare = text.removeprefix("n,,")
            challenge = f"{bare.partition('r=')[2]}more"
            self.said = [bare, f"r={challenge},s={base64.b64encode(b'salt').decode()},i=4096"]
            return SaslAuthenticateResponse(auth_bytes=self.said[1].encode())
        without_proof, _, proof = text.partition(",p=")
        signed = ",".join([*self.said, without_proof]).encode()
        client_key = hmac.digest(self.salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        if bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) != base64.b64decode(proof):
            return SaslAuthenticateResponse(error_code=58, error_message="Authentication failed: wrong credentials")
        server_key = b"guessed" if self.lies else hmac.digest(self.salted, b"Server Key", "sha256")
        verdict = b"v=" + base64.b64encode(hmac.digest(server_key, signed, "sha256"))
        return SaslAuthenticateResponse(auth_bytes=verdict, session_lifetime_ms=1 if version else 0)


LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "me",
    "sasl_password": "secret",
}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_with_scram(fake: FakeBroker, version: int) -> None:
    fake.versions[36] = (0, version)
    fake.answers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse()
    fake.answers[SaslAuthenticateRequest] = Authenticator()
    connection = connect(fake, **LOGIN)
    ask(connection)
    assert fake.asked[1:4] == [(SaslHandshakeRequest, 1), *[(SaslAuthenticateRequest, version)] * 2]
    time.sleep(0.01)
    assert connection.is_usable is (version == 0), "once the session is over, another connection is made"
    connection.close()


@pytest.mark.parametrize("authenticator", [Authenticator(b"other"), Authenticator(lies=True)], ids=["us", "the broker"])
def test_a_wrong_password_is_told_at_once(fake: FakeBroker, authenticator: Authenticator) -> None:
    fake.answers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse()
    fake.answers[SaslAuthenticateRequest] = authenticator
    with pytest.raises(AuthenticationFailed, match=r"check sasl\.mechanism") as error:
        connect(fake, **LOGIN)
    assert not error.value.is_passing
    assert "secret" not in str(error.value)


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are(fake: FakeBroker) -> None:
    answer = SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN", "GSSAPI"])
    fake.answers[SaslHandshakeRequest] = lambda request, version: answer
    with pytest.raises(AuthenticationFailed, match="it offers PLAIN, GSSAPI"):
        connect(fake, **LOGIN)


def test_a_listener_without_authentication_is_named_as_that(fake: FakeBroker) -> None:
    fake.answers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(error_code=34)
    with pytest.raises(AuthenticationFailed, match=r"has no authentication, so security\.protocol is PLAINTEXT or SSL"):
        connect(fake, **LOGIN)


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For 127.0.0.1, signed by itself; with its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-keyout", str(file)]
    made = subprocess.run([*command, "-out", "-"], check=True, capture_output=True).stdout
    file.write_bytes(file.read_bytes() + made)
    return file


@pytest.fixture
def secure(certificate: Path) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    broker = FakeBroker(context=context)
    yield broker
    broker.close()


def test_a_connection_in_tls(secure: FakeBroker, certificate: Path) -> None:
    connection = connect(secure, security_protocol="SSL", ssl_ca_location=str(certificate))
    assert ask(connection).brokers
    assert connection.is_usable
    connection.close()
    inline = connect(secure, security_protocol="SSL", ssl_truststore_certificates=certificate.read_text())
    assert ask(inline).brokers
    inline.close()


def test_a_certificate_that_nobody_vouches_for_is_refused(secure: FakeBroker) -> None:
    with pytest.raises(TlsFailed, match=r"certificate verify failed.*ssl\.ca\.location"):
        connect(secure, security_protocol="SSL")
    unverified = connect(secure, security_protocol="SSL", enable_ssl_certificate_verification="false")
    assert ask(unverified).brokers
    unverified.close()


def test_a_certificate_for_another_host_is_refused(secure: FakeBroker, certificate: Path) -> None:
    given = options(f"localhost:{secure.port}", security_protocol="SSL", ssl_ca_location=str(certificate))
    with pytest.raises(TlsFailed, match="Hostname mismatch"):
        Connection(given, given.bootstrap[0], soon())


def test_tls_with_a_broker_that_has_none_and_the_other_way_round(fake: FakeBroker, secure: FakeBroker) -> None:
    with pytest.raises(ClientError):
        connect(fake, security_protocol="SSL", socket_connection_setup_timeout_ms="500")
    with pytest.raises(ClientError):
        connect(secure)


def test_a_file_that_is_not_there_is_named() -> None:
    given = options("127.0.0.1:9", security_protocol="SSL", ssl_ca_location="/not/there.pem")
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(BadOption, match=r"/not/there\.pem"):
        Connection(given, server.getsockname(), soon())
