"""The least that an acknowledgement can take here: a server of ten lines that answers whatever it gets, at once or when
it has written that to a file and synced it.

    python -m bench.peers.echo [FILE]

It says the port that it listens on, serves one client, and ends with it. Like any server it sleeps while there is
nothing to do; to be woken, on another processor, is most of what it takes.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

REQUEST = bytes(260)  # about as long as a Produce of one record of 100 bytes
ANSWER = bytes(60)


def round_trips(number: int, file: Path | None = None) -> list[float]:
    """Seconds of each, with one in flight."""
    command = [sys.executable, "-m", "bench.peers.echo", *([str(file)] if file is not None else [])]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    times = []
    with server, socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(number):
            start = time.perf_counter()
            client.sendall(REQUEST)
            client.recv(len(ANSWER), socket.MSG_WAITALL)
            times.append(time.perf_counter() - start)
    return times


def serve(file: str | None) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if file is not None else None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        client, _ = listener.accept()
        with client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := client.recv(len(REQUEST), socket.MSG_WAITALL):
                if descriptor is not None:
                    os.write(descriptor, data)
                    os.fdatasync(descriptor)
                client.sendall(ANSWER)


if __name__ == "__main__":
    serve(sys.argv[1] if len(sys.argv) > 1 else None)
