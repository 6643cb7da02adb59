"""SASL PLAIN and SCRAM (RFC 5802, SHA-256 and SHA-512) as conversations without I/O.

A conversation is a generator: it yields the bytes to send, and receives the broker's responses, until it ends. Raises
ValueError if the broker does not prove that it knows the password.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator

from tailrace.client.options import Sasl

Conversation = Generator[bytes, bytes, None]

ITERATIONS_MIN = 4096  # RFC 7677; with fewer, an eavesdropper can guess the password
ITERATIONS_MAX = 10_000_000  # takes seconds; more is an attack or a mistake
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_BINDING = "n,,"


def converse(sasl: Sasl) -> Conversation:
    if sasl.mechanism == "PLAIN":
        return _plain(sasl)
    return scram(sasl, _DIGESTS[sasl.mechanism], secrets.token_urlsafe(24))


def _plain(sasl: Sasl) -> Conversation:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def scram(sasl: Sasl, digest: str, nonce: str) -> Conversation:
    """The SCRAM conversation. Names and passwords are sent unchanged: Kafka does no SASLprep either."""
    name = sasl.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = (yield (_NO_BINDING + first).encode()).decode()
    fields = _fields(challenge)
    if not fields["r"].startswith(nonce) or fields["r"] == nonce:
        raise ValueError("the server's nonce does not begin with ours")
    iterations = int(fields["i"])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"the server asks for {iterations} iterations; the minimum is {ITERATIONS_MIN}")
    salted = hashlib.pbkdf2_hmac(digest, sasl.password.encode(), _decoded(fields["s"]), iterations)
    final = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={fields['r']}"
    signed = f"{first},{challenge},{final}".encode()
    key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    verdict = _fields((yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(_decoded(verdict["v"]), expected):
        raise ValueError("the server does not know the password itself")


def _fields(text: str) -> "_Fields":
    found = _Fields(part.split("=", 1) for part in text.split(",") if "=" in part)
    if "e" in found:
        raise ValueError(found["e"])
    return found


class _Fields(dict[str, str]):
    def __missing__(self, name: str) -> str:
        raise ValueError(f"the server's message has no {name}=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("the server's message has invalid base64") from None
