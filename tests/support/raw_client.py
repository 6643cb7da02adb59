"""The raw client of `tailrace.testing`, with the requests that tests send again and again.

with RawClient(node.address) as client:
    client.ask(ApiVersionsRequest(), 3)
    client.send(MetadataRequest(topics=None), 12)
    client.receive()
"""

import socket
import struct
from typing import Any

from brokers import a_batch, fetch_request, from_offset, only_partition, produce_request, values_of

from tailrace.testing import raw_client

NOW_AND_THEN_MS = 1_700_000_000_000


class RawClient(raw_client.RawClient):
    def reset(self) -> None:
        """Closes the connection by a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def is_closed(self, timeout_s: float = 10) -> bool:
        """Whether the broker closes the connection in time; bytes that come before are dropped."""
        self.socket.settimeout(timeout_s)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def has_nothing(self, for_s: float = 0.1) -> bool:
        """Whether no response comes within that time."""
        timeout = self.socket.gettimeout()
        self.socket.settimeout(for_s)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(timeout)
        return False

    def produce(self, *values: bytes, topic: str = "orders", partition: int = 0, acks: int = -1, **fields: Any) -> Any:
        return only_partition(self.ask(a_produce(*values, topic=topic, partition=partition, acks=acks, **fields), 12))

    def values(self, topic: str = "orders", partition: int = 0, offset: int = 0, **fields: Any) -> list[bytes]:
        request = fetch_request(from_offset(offset, partition, 64 << 20), topic=topic, **{"max_wait_ms": 0, **fields})
        return values_of(only_partition(self.ask(request, 12)))


def a_produce(*values: bytes, topic: str = "orders", partition: int = 0, acks: int = -1, **fields: Any) -> Any:
    return produce_request(a_batch(*values, now_ms=NOW_AND_THEN_MS), topic, partition, acks, **fields)
