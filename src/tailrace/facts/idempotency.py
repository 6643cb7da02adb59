"""`__tailrace_idempotency`: requests to the gateway that had an Idempotency-Key, with what they were answered.

One record for each key, written in the transaction that writes the messages of its request: one is there if the others
are. Compacted, and deleted some time after `tailrace.http.idempotency.ms`. Key: the Idempotency-Key.
"""

from typing import NamedTuple

from tailrace.facts import document
from tailrace.facts.document import UnreadableFact

VERSION = 1


class KeyedRequest(NamedTuple):
    """`request` is a fingerprint of the request, `messages` has partition and offset of each message."""

    key: str
    at: int
    request: str
    messages: tuple[tuple[int, int], ...]

    @property
    def record_key(self) -> bytes:
        return key_of(self.key)

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())


def key_of(key: str) -> bytes:
    return document.encode(VERSION, {"of": [key]})


def decode(value: bytes) -> KeyedRequest:
    """Raises UnreadableFact."""
    fields = document.decode(value, VERSION)
    try:
        messages = tuple((int(partition), int(offset)) for partition, offset in fields.pop("messages"))
        return KeyedRequest(str(fields["key"]), int(fields["at"]), str(fields["request"]), messages)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFact(f"not a request with a key: {error}") from None
