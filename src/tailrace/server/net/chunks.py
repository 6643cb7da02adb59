"""Sends much in small steps, so that other clients are not held up.

A thread that sends old data shares the processors with all others, and the interpreter, too. So the socket blocks
while the thread has it: the thread waits in the kernel, and not in between. A thread that reads from a disk yields the
processor after each chunk: on a kernel that does not preempt itself, and lets each task have its time slice, a producer
would else wait for half a millisecond behind a reader.
"""

import math
import os
import socket
import struct
import time
from collections.abc import Callable

MORE = getattr(socket, "MSG_MORE", 0)  # a flag: what is sent now is only the beginning

CHUNK_BYTES = 128 << 10  # 50 to 100 µs
PIECE_BYTES = 1 << 20  # of what is in memory, in one call: it ends however slow the client is
PATIENCE_S = 0.01  # with a client that takes nothing, or says nothing: others wait for the thread that waits for it

_PATIENCE = struct.pack("@ll", 0, int(PATIENCE_S * 1e6))  # as the kernel's timeval


def set_patience(sock: socket.socket) -> None:
    """Where the socket is made to block, sending and receiving then end after a while with BlockingIOError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)


def send_chunks(
    send: Callable[[int, int], int], size: int, chunk_bytes: int = CHUNK_BYTES, until: float = math.inf
) -> int:
    """Says how much the client has taken without a pause, and before that time by the performance counter. `send` is
    told where to begin and how much to send, and says how much went.
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
