"""KafkaJS, through kafkajs.js: a node process that does what it is told in JSON, a line at a time."""

import base64
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import parts
from compat.contract import Acks, Cluster, Code, Consumer, Message, OffsetOf, Place, Refused, Start

DRIVER = Path(__file__).with_suffix(".js")
MESSAGES_AT_ONCE = 10
BYTES_AT_ONCE = 100_000


class KafkajsClient:
    def __init__(self, bootstrap: str) -> None:
        quiet = {"KAFKAJS_NO_PARTITIONER_WARNING": "1", "NODE_NO_WARNINGS": "1"}
        self._process = subprocess.Popen(
            ["node", str(DRIVER), bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | quiet | {"NODE_PATH": str(parts.kafkajs() / "node_modules")},
        )

    def close(self) -> None:
        try:
            self._process.communicate(timeout=10)
        finally:
            self._process.kill()
            self._process.wait()

    def _tell(self, verb: str, **what: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"verb": verb, **what}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if error := answer.get("error"):
            raise Refused(Code.UNREACHABLE if error["code"] is None else error["code"], error["text"])
        return answer["done"]

    def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        *,
        partition: int | None = None,
        acks: Acks = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[Place]:
        self._tell("open", acks=-1 if acks == "all" else int(acks), compression=compression, idempotent=idempotent)
        try:
            places = []
            for some in _few_at_once(messages):
                sent = self._tell("send", topic=topic, messages=[_described(each, partition) for each in some])
                if acks != "0" and len(sent) == 1:  # by partition; which message is where is known of one only
                    places += [Place(sent[0]["partition"], int(sent[0]["baseOffset"]) + n) for n in range(len(some))]
            return places
        finally:
            self._tell("close")

    def consumer(
        self,
        topic: str,
        start: Start = "earliest",
        *,
        partitions: Sequence[int] = (0,),
        wait_ms: int = 500,
        max_bytes: int | None = None,
    ) -> AbstractContextManager[Consumer]:
        raise NotImplementedError("it consumes in groups only")

    def offset(self, topic: str, of: OffsetOf, *, partition: int = 0) -> int | None:
        (found,) = [each for each in self._tell("offsets", topic=topic) if each["partition"] == partition]
        assert isinstance(of, str)
        return int(found[{"earliest": "low", "latest": "high"}[of]])

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        if not self._tell("createTopic", topic=topic, partitions=partitions, configs=_entries(configs or {})):
            raise Refused(Code.TOPIC_ALREADY_EXISTS)

    def topics(self) -> set[str]:
        return set(self._tell("topics"))

    def partitions(self, topic: str) -> int:
        (found,) = self._tell("describe", topic=topic)["topics"]
        return len(found["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        self._tell("addPartitions", topic=topic, total=total)

    def delete_topic(self, topic: str) -> None:
        self._tell("deleteTopic", topic=topic)

    def configs(self, topic: str) -> dict[str, str]:
        (found,) = self._tell("configs", topic=topic)["resources"]
        return {entry["configName"]: entry["configValue"] for entry in found["configEntries"]}

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._tell("setConfigs", topic=topic, configs=_entries(configs))

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None:
        self._tell("deleteRecords", topic=topic, partition=partition, before=before)

    def cluster(self) -> Cluster:
        found = self._tell("cluster")
        brokers = {broker["nodeId"]: f"{broker['host']}:{broker['port']}" for broker in found["brokers"]}
        return Cluster(found["clusterId"], brokers)


def _few_at_once(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """It sends what it is given at once as one batch, however large."""
    some: list[Message] = []
    for message in messages:
        some.append(message)
        if len(some) == MESSAGES_AT_ONCE or sum(len(each.value or b"") for each in some) > BYTES_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _entries(configs: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in configs.items()]


def _described(message: Message, partition: int | None) -> dict[str, Any]:
    return {
        "value": _encoded(message.value),
        "key": _encoded(message.key),
        "headers": [(name, _encoded(value)) for name, value in message.headers],
        "timestamp": message.timestamp,
        "partition": partition,
    }


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
