"""Many small producers in one process: so many connections, each with a message every tenth of a second, `acks=1`.

    python -m bench.programs.crowd_driver HOST PORT TOPIC CONNECTIONS SECONDS

One epoll and frames that are made once, so that the driver itself takes little: it says how much, and how late it was.
A message is timed from its send to the answer's arrival. Prints one line of JSON: latencies (seconds), late (seconds,
the 99th percentile of sends after their time) and cpu (share of a core).
"""

import json
import select
import socket
import sys
import time
from collections import deque

from bench.harness.measure import percentile
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import base_offset, open_topic, produce_frame

PER_SECOND = 10
_WARM_S = 1.0
_PATIENCE_S = 30


class Crowd:
    def __init__(self, host: str, port: int, topic: str, number: int) -> None:
        with RawConnection(host, port) as connection:
            open_topic(connection, topic)
            answer = connection.exchange(produce_frame(topic, 1))
            base_offset(answer)  # raises where it was refused
        self._answer_bytes = 4 + len(answer)
        self._frame = produce_frame(topic, 1)
        self._sockets = [socket.create_connection((host, port)) for _ in range(number)]
        self._by_number = {one.fileno(): one for one in self._sockets}
        self._epoll = select.epoll()
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._epoll.register(one, select.EPOLLIN)
        self._sent_at: dict[int, deque[float]] = {number: deque() for number in self._by_number}
        self._in_flight = 0

    def run(self, seconds: float) -> tuple[list[float], list[float]]:
        """Latencies, and how late each send was."""
        latencies: list[float] = []
        late: list[float] = []
        step = 1 / PER_SECOND / len(self._sockets)
        begin = time.perf_counter()
        count, total = 0, int(seconds / step)
        while count < total or self._in_flight:
            now = time.perf_counter()
            while count < total and (due := begin + count * step) <= now:
                self._send(self._sockets[count % len(self._sockets)])
                late.append(now - due)
                count += 1
            wait = max(0.0, begin + count * step - time.perf_counter()) if count < total else _PATIENCE_S
            latencies += self._received(wait)
        return latencies, late

    def _send(self, one: socket.socket) -> None:
        """One whose last message was not answered yet sends all the same: a slow broker gets no less to do."""
        self._sent_at[one.fileno()].append(time.perf_counter())
        one.sendall(self._frame)
        self._in_flight += 1

    def _received(self, wait: float) -> list[float]:
        found = self._epoll.poll(wait)
        if not found and wait == _PATIENCE_S:
            raise RuntimeError(f"no answer within {wait} s")
        now = time.perf_counter()
        latencies = []
        for number, _ in found:
            count, odd = divmod(len(self._by_number[number].recv(64 * self._answer_bytes)), self._answer_bytes)
            if odd or not count:
                raise RuntimeError("an answer of another length than the first: a batch was refused")
            latencies += [now - self._sent_at[number].popleft() for _ in range(count)]
        self._in_flight -= len(latencies)
        return latencies


def main() -> None:
    host, port, topic, number, seconds = sys.argv[1:]
    crowd = Crowd(host, int(port), topic, int(number))
    crowd.run(_WARM_S)
    cpu, start = time.process_time(), time.perf_counter()
    latencies, late = crowd.run(float(seconds))
    share = (time.process_time() - cpu) / (time.perf_counter() - start)
    print(json.dumps({"latencies": latencies, "late": percentile(late, 99), "cpu": share}))


if __name__ == "__main__":
    main()
