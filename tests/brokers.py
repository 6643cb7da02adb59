"""A broker without a server, for tests of its decisions: requests go in and out as bytes, time and jobs are the test's.

    with LocalBroker(tmp_path) as broker:
        response = broker.ask(MetadataRequest(topics=None), version=12)

Every request is encoded and decoded on its way in, and every answer on its way out, in the version that is asked for.
Jobs run when the broker is asked something, or by `run_jobs`; with `hold_jobs` they wait for that.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.broker.apis.registry import APIS
from tailrace.broker.configs import BrokerConfigs
from tailrace.broker.opening import open_broker
from tailrace.broker.requests import Call, Endpoint, Silence
from tailrace.broker.waiting import Later
from tailrace.log.directory import DataDirectory
from tailrace.log.files import Files, OperatingSystemFiles
from tailrace.log.store import Job
from tailrace.protocol import codec
from tailrace.protocol.message import specification_of
from tailrace.protocol.messages import RESPONSES
from tailrace.records.record import Record, encode_batch

ENDPOINT = Endpoint("127.0.0.1", 9092)
NOW_MS = 1_800_000_000_000


class LocalBroker:
    def __init__(
        self, path: Path | str, configs: Mapping[str, str] | None = None, *, files: Files | None = None, seed: int = 0
    ) -> None:
        self.path = str(path)
        self.configs = dict(configs or {})
        self.now_ms = NOW_MS
        self.hold_jobs = False
        self._files = files or OperatingSystemFiles()
        self._random = random.Random(seed)
        self._jobs: deque[tuple[Job, Callable[[], object]]] = deque()
        self.open()

    def open(self) -> None:
        self.directory = DataDirectory(self._files, self.path)
        self.broker = open_broker(
            self.directory,
            BrokerConfigs(self.configs),
            self.now_ms,
            start_job=lambda job, finish: self._jobs.append((job, finish)),
            random_bytes=self._random.randbytes,
        )
        self.run_jobs()

    def close(self) -> None:
        self.run_jobs()
        self.directory.close(self.now_ms)

    def restart(self) -> None:
        """A clean stop and a start; `kill` is the other kind."""
        self.close()
        self.open()

    def kill(self) -> None:
        """What a killed process leaves: everything written, nothing said. Another one is opened on the directory."""
        self._jobs.clear()
        self.directory.abandon()
        self.open()

    def __enter__(self) -> "LocalBroker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def begin(self, request: Any, version: int, *, client_id: str | None = "test") -> Any:
        """The answer as the broker returned it: a response, a Later, or Silence."""
        key = specification_of(type(request)).key
        assert key is not None
        api = APIS[key]
        # A bytearray, as it comes from a socket: offsets are stamped in place.
        frame = memoryview(bytearray(codec.encode(request, version)))
        decoded = codec.decode(type(request), version, frame, elements=api.elements_max)
        return self.broker.handle(api, decoded, Call(version, client_id, ENDPOINT, self.now_ms))

    def ask(self, request: Any, version: int, *, client_id: str | None = "test") -> Any:
        """The answer as a client would read it; None where there is none. Fails if it would still have to wait."""
        answer = self.begin(request, version, client_id=client_id)
        if not self.hold_jobs:
            self.run_jobs()
        if isinstance(answer, Later):
            resolved: list[Any] = []
            answer.when_resolved(resolved.append)
            assert resolved, f"the answer to {type(request).__name__} does not come"
            answer = resolved[0]
        if isinstance(answer, Silence):
            return None
        return self.decode(answer, type(request), version)

    def decode(self, answer: Any, request: type[Any], version: int) -> Any:
        """An answer after its way over the wire, slices read."""
        parts = codec.encode_parts(answer, version)
        data = b"".join(bytes(part.read()) if hasattr(part, "release") else bytes(part) for part in parts)
        for part in parts:
            if hasattr(part, "release"):
                part.release()
        return codec.decode(RESPONSES[specification_of(request).key or 0], version, data)

    def run_jobs(self) -> None:
        """Afterwards nothing is left to do in a thread."""
        while True:
            if self._jobs:
                job, finish = self._jobs.popleft()
                job.run()
                finish()
            elif (flush := self.broker.flushes.next_job()) is not None:
                flush.run()
                self.broker.flushed(flush)
            else:
                return

    def tick(self, ms: int = 1000) -> None:
        """Time passes."""
        self.now_ms += ms
        self.broker.tick(self.now_ms)
        if not self.hold_jobs:
            self.run_jobs()


def a_batch(*values: bytes, now_ms: int = NOW_MS, **fields: Any) -> bytearray:
    """A batch as a producer sends it, one record for each value."""
    return encode_batch([Record(n, now_ms, None, value) for n, value in enumerate(values)], **fields)
