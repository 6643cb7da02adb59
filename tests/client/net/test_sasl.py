from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.test_codec_against_kio import any_values, kio_bytes, kio_module, to_kio
from protocol.values import messages

from tailrace.client.net.sasl import converse, scram
from tailrace.client.options import Sasl
from tailrace.protocol.codec import decode, encode
from tailrace.protocol.message import versions_of
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

USER = Sasl("SCRAM-SHA-256", "user", "pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"  # this and what follows: RFC 7677, section 3
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_says_what_the_rfc_says() -> None:
    conversation = scram(USER, "sha256", NONCE)
    assert next(conversation) == b"n,,n=user,r=" + NONCE.encode()
    assert conversation.send(CHALLENGE) == FINAL
    with pytest.raises(StopIteration):
        conversation.send(VERDICT)


@pytest.mark.parametrize("verdict", [b"v=" + b"A" * 43 + b"=", b"v=!", b"", b"e=invalid-proof"])
def test_a_broker_that_does_not_know_the_password_is_none(verdict: bytes) -> None:
    conversation = scram(USER, "sha256", NONCE)
    next(conversation)
    conversation.send(CHALLENGE)
    with pytest.raises(ValueError, match=r"message has|invalid-proof|does not know"):
        conversation.send(verdict)


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE.replace(b"4096", b"1"),
        CHALLENGE.replace(b"4096", b"99999999999"),
        CHALLENGE.replace(b"4096", b"many"),
        CHALLENGE.replace(b"r=rOpr", b"r=xxxx"),
        CHALLENGE.replace(b",s=", b",t="),
        b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"\xff\xfe",
        b"",
    ],
)
def test_a_challenge_that_is_weak_or_none_is_not_answered(challenge: bytes) -> None:
    conversation = scram(USER, "sha256", NONCE)
    next(conversation)
    with pytest.raises(ValueError, match=r"nonce|iterations|invalid literal|has no [rsi]=|codec"):
        conversation.send(challenge)


def test_names_are_escaped() -> None:
    assert next(scram(Sasl("SCRAM-SHA-512", "a=b,c", "x"), "sha512", "n")) == b"n,,n=a=3Db=2Cc,r=n"


def test_plain_says_it_plainly() -> None:
    assert list(converse(Sasl("PLAIN", "me", "secret"))) == [b"\0me\0secret"]


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (kind, version)
        for kind in (SaslHandshakeRequest, SaslHandshakeResponse, SaslAuthenticateRequest, SaslAuthenticateResponse)
        for version in range(versions_of(kind).last + 1)
    ],
)
@given(data=st.data())
@any_values
def test_the_messages_are_those_of_kio(message: type[Any], version: int, data: Any) -> None:
    value = data.draw(messages(message, version))
    if hasattr(value, "session_lifetime_ms"):
        value.session_lifetime_ms %= 1 << 40  # what kio holds as a duration
    written = encode(value, version)
    assert written == kio_bytes(to_kio(value, version, kio_module(message, version)))
    assert decode(message, version, written) == value
