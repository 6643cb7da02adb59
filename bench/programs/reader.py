"""Readers with no client library: all of partition 0 of a topic, from start to end, on some connections at once.

    python -m bench.programs.reader HOST PORT TOPIC CONNECTIONS [again]

Prints a line when it begins, and one of JSON when each has read all: bytes and seconds. With `again` it begins anew
until it is killed.
"""

import json
import sys
import time

from bench.harness.raw_connection import RawConnection
from bench.harness.requests import FETCH_VERSION, fetch_frame
from tailrace.protocol.frame import decode_response
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.records.batch import EXTENT, LENGTH_END


def next_offset(records: bytes | bytearray | memoryview) -> int | None:
    """After the last whole batch; None where there is none."""
    at, found = 0, None
    while at + EXTENT.size <= len(records):
        base, length, distance = EXTENT.unpack_from(records, at)
        at += LENGTH_END + length
        if at <= len(records):
            found = base + distance + 1
    return found


def read_all(host: str, port: int, topic: str, number: int) -> int:
    """Bytes. Each connection has one Fetch in flight."""
    connections = [RawConnection(host, port) for _ in range(number)]
    offsets = dict.fromkeys(connections, 0)
    for connection in connections:
        connection.send_frame(fetch_frame(topic, 0, 0))
    total = 0
    while offsets:
        for connection in list(offsets):
            answer = connection.receive_frame()
            total += len(answer)
            after = _offset_after(answer)
            if after is None:
                del offsets[connection]
                connection.close()
            else:
                connection.send_frame(fetch_frame(topic, after, 0))
    return total


def _offset_after(answer: bytes) -> int | None:
    partition = decode_response(FetchResponse, FETCH_VERSION, answer)[1].responses[0].partitions[0]
    if partition.error_code:
        raise RuntimeError(f"a Fetch was refused: error {partition.error_code}")
    records = partition.records or b""
    assert isinstance(records, bytes | memoryview)
    return next_offset(records)


def main() -> None:
    host, port, topic, number, *again = sys.argv[1:]
    print("reading", flush=True)
    start = time.perf_counter()
    size = read_all(host, int(port), topic, int(number))
    while again:
        size += read_all(host, int(port), topic, int(number))
    print(json.dumps({"bytes": size, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
