"""A real broker inside a test's process: its own thread, its own loop, a temporary directory.

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

It is the broker that `tailrace serve` runs, on a free port of 127.0.0.1. `restart` is for tests of clients that outlive
a restart.
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tailrace.log.disk.interface import Files
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.server.node import Node
from tailrace.server.run import new_event_loop
from tailrace.server.settings import Listen
from tailrace.testing.raw_client import RawClient

STOP_S = 30.0
_GROUP, _SET = 32, 0  # as on the wire: a kind of resource, and what is done to a config
# Configs with which groups do not keep a test waiting: for `BrokerProcess`, too.
IMPATIENT = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.min.session.timeout.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "10",
    "group.share.min.record.lock.duration.ms": "1",
    "group.share.min.session.timeout.ms": "100",
}
SMALL = {"tailrace.journal.bytes": "1048576"}  # no test needs 32 MiB of disk
KEEPING = {"log.retention.check.interval.ms": "86400000"}  # records of tests may have any timestamp


class Broker:
    def __init__(
        self,
        configs: Mapping[str, str] | None = None,
        *,
        data: str | None = None,
        port: int = 0,
        files: Files | None = None,
    ) -> None:
        """`configs` are broker configs, by Kafka's names. Some defaults differ here: groups are prompt, and allow short
        timeouts and locks (`IMPATIENT`), retention checks run once a day, and the journal is small. `data` is kept if
        it is given; otherwise a temporary directory is used, and removed at the end.
        """
        self._configs = IMPATIENT | KEEPING | SMALL | dict(configs or {})
        self._files = files
        self._is_temporary = data is None
        self.data = data or tempfile.mkdtemp(prefix="tailrace-")
        self.host = "127.0.0.1"
        self.port = port
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    def start(self) -> "Broker":
        """Starts the broker; on return it serves clients. Uses the same port as before if it was started before."""
        assert self._thread is None, "it runs already"
        ready = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(ready,), name="tailrace-broker", daemon=True)
        self._thread.start()
        ready.wait()
        if self._error is not None:
            self._join()
            raise self._error
        return self

    def _run(self, ready: threading.Event) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve(ready))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that called `start`
            self._error = error
        finally:
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.node = Node(self.data, [Listen(self.host, self.port)], self._configs, files=self._files)
        await self.node.start()
        self.port = self.node.listeners[0].port
        ready.set()
        await self._stop.wait()
        await self.node.stop()

    def stop(self) -> None:
        """Stops the broker; on return all data is on disk. `start` brings it back with that data."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._join()
            if self._error is not None:
                raise self._error

    def _join(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(STOP_S)
            assert not thread.is_alive(), f"the broker has not stopped in {STOP_S:.0f} s"

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Creates a topic. Raises ValueError if that fails."""
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        answer: CreateTopicsResponse = self._ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
        if answer.topics[0].error_code:
            raise ValueError(answer.topics[0].error_message)

    def set_group_configs(self, group: str, configs: Mapping[str, str]) -> None:
        """Sets configs of a group, which need not exist: of a queue, share.record.lock.duration.ms and others. Raises
        ValueError if one is refused.
        """
        changes = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in configs.items()]
        wanted = AlterConfigsResource(resource_type=_GROUP, resource_name=group, configs=changes)
        answer: IncrementalAlterConfigsResponse = self._ask(IncrementalAlterConfigsRequest(resources=[wanted]), 1)
        if answer.responses[0].error_code:
            raise ValueError(answer.responses[0].error_message)

    def _ask(self, request: Any, version: int) -> Any:
        with RawClient((self.host, self.port), client_id="tailrace.testing", timeout_s=None) as client:
            return client.ask(request, version)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops the broker, and removes a temporary directory."""
        try:
            self.stop()
        finally:
            if self._is_temporary:
                shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
