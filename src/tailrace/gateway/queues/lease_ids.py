"""The names of leases: opaque texts, each for one delivery of one message, which only the gateway can make. Pure."""

import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from itertools import count

_DELIVERY = struct.Struct(">QIQH")  # a number of our own, partition, offset, attempt
_MAC_BYTES = 14  # so that the text needs no padding
LENGTH = (_DELIVERY.size + _MAC_BYTES) * 4 // 3


class LeaseIds:
    """Those of one queue, for as long as the gateway has it open."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._numbers = count()

    def new(self, partition: int, offset: int, attempt: int) -> str:
        delivery = _DELIVERY.pack(next(self._numbers), partition, offset, attempt)
        return urlsafe_b64encode(delivery + self._mac(delivery)).decode()

    def is_known(self, lease: str) -> bool:
        """Returns whether the text was made here."""
        if len(lease) != LENGTH or not lease.isascii():
            return False
        try:
            data = urlsafe_b64decode(lease)
        except ValueError:
            return False
        delivery = data[: _DELIVERY.size]
        return secrets.compare_digest(data[_DELIVERY.size :], self._mac(delivery))

    def _mac(self, delivery: bytes) -> bytes:
        return blake2b(delivery, key=self._key, digest_size=_MAC_BYTES).digest()
