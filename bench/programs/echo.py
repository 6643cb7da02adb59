"""The least that it can take here: a server of a few lines that answers whatever it gets, or just stores it.

`python -m bench.programs.echo` and one of

    answer               at once
    sync FILE            when it has written that to a file and synced it
    pass-on FILE         the same, where a thread syncs, so that others could be served, and
                         another client is told, too, before the one who has sent it
    look FILE            never sleeps; sums and writes, and then answers
    store FILE           receives, sums and writes by the megabyte, and answers at the end, with
                         the CPU time that this took: what a broker does with a batch, at least.
                         The file has blocks ahead of its end, as ours have
    store-synced FILE …  and has it synced by the system, as we have: one sync at a time,
                         with all that was written before it
    send FILE            sends a megabyte of the file for each request, and the CPU time that
                         this took at the end: what a broker does with a Fetch, at least

It says the port that it listens on, serves these clients, and ends with them. Like any server, but for the one that
looks for the next request all the time, it sleeps while there is nothing to do; to be woken, on another processor, is
most of what it takes.
"""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from bench.measures.consumers import PARKED_S
from tailrace.log.disk.system_calls import reserve
from tailrace.log.segment.preallocation import AHEAD_BYTES
from tailrace.records.checksum import crc32c
from tailrace.server.flusher.linux_aio import System

REQUEST = bytes(260)  # about as long as a Produce of one record of 100 bytes
ANSWER = bytes(60)
CHUNK_BYTES = 1 << 20
CPU = struct.Struct(">d")
FILE_CHUNKS = 256  # of what is sent: more than a processor's caches hold
SEND_BUFFER_BYTES = 212_992  # as ours is


def round_trips(number: int, how: str = "answer", file: Path | None = None) -> list[float]:
    """Seconds of each, with one in flight."""
    times = []
    with _clients(1, how, file) as (client,):
        for _ in range(number):
            start = time.perf_counter()
            client.sendall(REQUEST)
            client.recv(len(ANSWER), socket.MSG_WAITALL)
            times.append(time.perf_counter() - start)
    return times


def passed_on(number: int, file: Path) -> list[float]:
    """Seconds from one client's request to what another one is told, each after a pause as `waiting.wake_times` has."""
    times = []
    with _clients(2, "pass-on", file) as (sender, reader):
        for _ in range(number):
            time.sleep(PARKED_S)
            start = time.perf_counter()
            sender.sendall(REQUEST)
            reader.recv(len(ANSWER), socket.MSG_WAITALL)
            times.append(time.perf_counter() - start)
            sender.recv(len(ANSWER), socket.MSG_WAITALL)
    return times


def stored(size: int, file: Path, per_second: float, how: str = "store") -> float:
    """CPU seconds for each GB, which comes at this rate: who is idle in between finds nothing of his in the caches. The
    client is busy meanwhile, as one is that makes messages.
    """
    chunk = os.urandom(CHUNK_BYTES)
    with _clients(1, how, file) as (client,):
        start, sent = time.perf_counter(), 0
        while sent < size:
            _be_busy(start + sent / per_second)
            client.sendall(chunk)
            sent += len(chunk)
        client.shutdown(socket.SHUT_WR)
        (cpu,) = CPU.unpack(client.recv(CPU.size, socket.MSG_WAITALL))
    file.unlink()
    return float(cpu) / (sent / 1e9)


def sent(size: int, file: Path, per_second: float) -> float:
    """CPU seconds for each GB that is asked for by the megabyte, at this rate; the client is busy in between."""
    with file.open("wb") as history:
        for _ in range(FILE_CHUNKS):
            history.write(os.urandom(CHUNK_BYTES))
    room = memoryview(bytearray(CHUNK_BYTES))
    with _clients(1, "send", file) as (client,):
        start, received = time.perf_counter(), 0
        while received < size:
            _be_busy(start + received / per_second)
            client.sendall(REQUEST)
            received += client.recv_into(room, 0, socket.MSG_WAITALL)
        client.shutdown(socket.SHUT_WR)
        (cpu,) = CPU.unpack(client.recv(CPU.size, socket.MSG_WAITALL))
    file.unlink()
    return float(cpu) / (received / 1e9)


def _be_busy(until: float) -> None:
    while time.perf_counter() < until:
        pass


@contextmanager
def _clients(count: int, how: str, file: Path | None) -> Iterator[list[socket.socket]]:
    words = [how] if file is None else [how, str(file)]
    command = [sys.executable, "-m", "bench.programs.echo", *words]
    with ExitStack() as stack:
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert server.stdout is not None
        address = "127.0.0.1", int(server.stdout.readline())
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
        for client in clients:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield clients


def serve(how: str, file: str | None = None) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        print(listener.getsockname()[1], flush=True)
        clients = [stack.enter_context(listener.accept()[0]) for _ in range(2 if how == "pass-on" else 1)]
        for client in clients:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if file is not None else None
        if how.startswith("store") and descriptor is not None:
            clients[0].sendall(CPU.pack(_store(clients[0], descriptor, System(1) if how == "store-synced" else None)))
            return
        if how == "send" and file is not None:
            clients[0].sendall(CPU.pack(_send(clients[0], file)))
            return
        if how == "look" and descriptor is not None:
            _look(clients[0], descriptor)
            return
        answer = partial(_answer, clients, descriptor)
        _converse(clients[0], descriptor, answer if how in ("answer", "sync") else _in_thread(answer))


def _store(client: socket.socket, descriptor: int, syncs: System | None) -> float:
    room = memoryview(bytearray(CHUNK_BYTES))
    start, written, is_syncing = time.process_time(), 0, False
    while count := client.recv_into(room, 0, socket.MSG_WAITALL):
        crc32c(room[:count])
        if written % AHEAD_BYTES < CHUNK_BYTES:
            reserve(descriptor, written, AHEAD_BYTES)
        os.write(descriptor, room[:count])
        written += count
        if syncs is not None and (not is_syncing or _is_done(syncs)):
            _submit(syncs, descriptor)
            is_syncing = True
    return time.process_time() - start


def _send(client: socket.socket, path: str) -> float:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    start, position = time.process_time(), 0
    with open(path, "rb") as file:
        while client.recv(len(REQUEST), socket.MSG_WAITALL):
            end = position + CHUNK_BYTES
            while position < end:
                position += os.sendfile(client.fileno(), file.fileno(), position, end - position)
            position %= FILE_CHUNKS * CHUNK_BYTES
    return time.process_time() - start


def _submit(syncs: System, descriptor: int) -> None:
    if not syncs.submit(descriptor, 1):
        raise OSError("the system does not take a sync")


def _is_done(syncs: System) -> bool:
    finished = syncs.finished()
    for _, result in finished:
        if result:
            raise OSError(-result, os.strerror(-result))
    return bool(finished)


def can_hand_over_syncs() -> bool:
    try:
        System(1).close()
    except OSError:
        return False
    return True


def _look(client: socket.socket, descriptor: int) -> None:
    room = memoryview(bytearray(CHUNK_BYTES))
    client.setblocking(False)
    while True:
        try:
            count = client.recv_into(room)
        except BlockingIOError:
            continue
        if not count:
            return
        crc32c(room[:count])
        os.write(descriptor, room[:count])
        client.send(ANSWER)


def _converse(client: socket.socket, descriptor: int | None, answer: Callable[[], None]) -> None:
    while data := client.recv(len(REQUEST), socket.MSG_WAITALL):
        if descriptor is not None:
            os.write(descriptor, data)
        answer()


def _answer(clients: list[socket.socket], descriptor: int | None) -> None:
    if descriptor is not None:
        os.fdatasync(descriptor)
    for client in reversed(clients):
        client.sendall(ANSWER)


def _in_thread(answer: Callable[[], None]) -> Callable[[], None]:
    asked: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        while True:
            asked.get()
            answer()

    threading.Thread(target=work, daemon=True).start()
    return partial(asked.put, None)


if __name__ == "__main__":
    serve(*sys.argv[1:])
