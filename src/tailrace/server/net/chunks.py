"""The chunks of a response, and how threads send large ones in small steps, so that other clients are not held up.

A thread that sends old data shares the processors, and the interpreter lock, with all other threads. So the socket is
in blocking mode while the thread has it: the thread waits in the kernel. A thread that reads from a disk yields the
processor after each chunk: on a kernel without preemption, a producer would otherwise wait for half a millisecond
behind a reader.
"""

import math
import os
import socket
import struct
import time
from collections.abc import Callable

from tailrace.log.segment.slices import Slice

MORE = getattr(socket, "MSG_MORE", 0)  # a flag: more data follows

CHUNK_BYTES = 128 << 10  # 50 to 100 µs
PIECE_BYTES = 1 << 20  # sent from memory in one call, so that a call ends even with a slow client
PATIENCE_S = 0.01  # with a silent client: other clients wait for the thread that waits for it

BUFFERS = (bytes, bytearray, memoryview)

ResponseChunk = bytes | bytearray | memoryview | Slice

_PATIENCE = struct.pack("@ll", 0, int(PATIENCE_S * 1e6))  # as the kernel's timeval


def length_of(chunk: ResponseChunk) -> int:
    return len(chunk) if isinstance(chunk, BUFFERS) else chunk.length


def release(chunk: ResponseChunk) -> None:
    """Releases the file of a slice."""
    if not isinstance(chunk, BUFFERS):
        chunk.release()


def shortened_file() -> OSError:
    return OSError("a file has become shorter while it was sent")


def set_patience(sock: socket.socket) -> None:
    """Limits how long sending and receiving on a blocking socket may take: then they raise BlockingIOError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)


def send_chunks(
    send: Callable[[int, int], int], size: int, chunk_bytes: int = CHUNK_BYTES, until: float = math.inf
) -> int:
    """Sends `size` bytes in steps. Returns how much the client took without a pause, and before the deadline, which is
    a time of the performance counter. `send` gets position and size of a step, and returns how much was sent.
    """
    sent = 0
    while (left := size - sent) > 0:
        wanted = min(left, chunk_bytes)
        try:
            count = send(sent, wanted)
        except BlockingIOError:
            break
        sent += count
        if count < wanted or sent == size or time.perf_counter() > until:
            break
        os.sched_yield()
    return sent
