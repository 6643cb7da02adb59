"""Kafka's own Java clients, through the command line tools that come with them."""

import atexit
import functools
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import parts
from compat.clients import programs
from compat.contract import Acks, AtTime, Cluster, Code, Isolation, Message, OffsetOf, Place, Received, Refused, Start

TOOLS = "org.apache.kafka.tools"
NULL = "<null>"
OFFSET_SPECS = {"earliest": "-2", "latest": "-1", "newest": "-3"}
EXCEPTIONS = {
    "RecordTooLargeException": Code.MESSAGE_TOO_LARGE,
    "InvalidTopicException": Code.INVALID_TOPIC,
    "InvalidConfigurationException": Code.INVALID_CONFIG,
    "InvalidRecordException": Code.INVALID_RECORD,
    "UnknownTopicOrPartitionException": Code.UNKNOWN_TOPIC_OR_PARTITION,
    "OffsetOutOfRangeException": Code.OFFSET_OUT_OF_RANGE,
}


def java(name: str, *arguments: str) -> list[str]:
    """The command that runs one of Kafka's programs."""
    return _java(name, f"-XX:SharedArchiveFile={_class_archive()}", *arguments)


def _java(name: str, option: str, *arguments: str) -> list[str]:
    in_a_hurry = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return ["java", *in_a_hurry, option, "-Xlog:disable", "-cp", f"{parts.kafka_jars()}/*", name, *arguments]


@functools.cache
def _class_archive() -> Path:
    """Classes in the form that Java needs them in, which saves half the time of a start. Made from a run that fails."""
    directory = Path(tempfile.mkdtemp(prefix="kafka-classes-"))
    atexit.register(shutil.rmtree, directory)
    archive = directory / "classes.jsa"
    impatient = directory / "impatient.properties"
    impatient.write_text("default.api.timeout.ms=300\nrequest.timeout.ms=200\n")
    nobody = ("--bootstrap-server", "127.0.0.1:1", "--command-config", str(impatient), "--list")
    programs.run(_java(f"{TOOLS}.TopicCommand", f"-XX:ArchiveClassesAtExit={archive}", *nobody))
    return archive


def run_tool(name: str, *arguments: str) -> str:
    """What it printed; a refusal of the broker is raised."""
    done = programs.run(java(name, *arguments))
    said = done.stdout + done.stderr
    if done.returncode:
        _raise_refusal(said)
        raise Refused(Code.UNREACHABLE, f"{name} {arguments} ended with {done.returncode}: {said}")
    return done.stdout


class JavaClient:
    def __init__(self, bootstrap: str) -> None:
        self._server = ["--bootstrap-server", bootstrap]

    def close(self) -> None:
        pass

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
        assert partition is None, "it cannot choose"
        reader = {"parse.key": "true", "parse.headers": "true", "null.marker": NULL}
        settings = {
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "retries": str(2**31 - 1),
            "request.timeout.ms": "30000",
            "linger.ms": "2",
            "max.request.size": "16000000",
            "reconnect.backoff.max.ms": "500",
        }
        command = java(f"{TOOLS}.ConsoleProducer", *self._server, "--topic", topic, "--compression-codec", compression)
        command += [argument for item in reader.items() for argument in ("--reader-property", "=".join(item))]
        command += [argument for item in settings.items() for argument in ("--command-property", "=".join(item))]
        if not idempotent:
            command.append("--sync")  # or it says nothing of what was refused
        status, said = programs.feed(command, map(_line, messages))
        if status:
            _raise_refusal(said)
            raise AssertionError(f"the console producer ended with {status}: {said}")
        return []

    def consumer(
        self,
        topic: str,
        start: Start = "earliest",
        *,
        partitions: Sequence[int] = (0,),
        wait_ms: int = 500,
        max_bytes: int | None = None,
        isolation: Isolation | None = None,
    ) -> AbstractContextManager[programs.PrintingConsumer]:
        (partition,) = partitions
        assert not isinstance(start, AtTime), "it cannot start at a time"
        shown = ("timestamp", "partition", "offset", "headers", "key", "value")
        formatter = {f"print.{field}": "true" for field in shown} | {"null.literal": NULL}
        settings = {
            "auto.offset.reset": "none",
            "fetch.max.wait.ms": str(wait_ms),
            "request.timeout.ms": str(wait_ms + 60_000),
            "reconnect.backoff.max.ms": "500",
        }
        if isolation is not None:
            settings["isolation.level"] = isolation
        if max_bytes is not None:
            settings |= {"fetch.max.bytes": str(max_bytes), "max.partition.fetch.bytes": str(max_bytes)}
        where = ["--topic", topic, "--partition", str(partition), "--offset", str(start)]
        command = java(f"{TOOLS}.consumer.ConsoleConsumer", *self._server, *where)
        command += [argument for item in formatter.items() for argument in ("--formatter-property", "=".join(item))]
        command += [argument for item in settings.items() for argument in ("--command-property", "=".join(item))]
        return programs.printing(command, _received, _raise_at_end)

    def offset(self, topic: str, of: OffsetOf, *, partition: int = 0) -> int | None:
        spec = str(of.milliseconds) if isinstance(of, AtTime) else OFFSET_SPECS[of]
        where = ("--topic-partitions", f"{topic}:{partition}", "--time", spec)
        said = run_tool(f"{TOOLS}.GetOffsetShell", *self._server, *where)
        found = re.fullmatch(rf"(?:{re.escape(topic)}:{partition}:(\d+)\n)?", said)
        assert found, said
        return None if found[1] is None else int(found[1])

    def _topic_tool(self, *arguments: str) -> str:
        return run_tool(f"{TOOLS}.TopicCommand", *self._server, *arguments)

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        options = [option for item in (configs or {}).items() for option in ("--config", "=".join(item))]
        self._topic_tool("--create", "--topic", topic, "--partitions", str(partitions), *options)

    def topics(self) -> set[str]:
        return set(self._topic_tool("--list").split())

    def partitions(self, topic: str) -> int:
        head, *each = self._topic_tool("--describe", "--topic", topic).splitlines()
        assert f"PartitionCount: {len(each)}\t" in head
        assert all(re.search(r"\tLeader: \d+\t", line) for line in each)
        return len(each)

    def add_partitions(self, topic: str, total: int) -> None:
        self._topic_tool("--alter", "--topic", topic, "--partitions", str(total))

    def delete_topic(self, topic: str) -> None:
        self._topic_tool("--delete", "--topic", topic)

    def _config_tool(self, topic: str, *arguments: str) -> str:
        entity = ("--entity-type", "topics", "--entity-name", topic)
        return run_tool("kafka.admin.ConfigCommand", *self._server, *entity, *arguments)

    def configs(self, topic: str) -> dict[str, str]:
        said = self._config_tool(topic, "--describe", "--all")
        return dict(re.findall(r"^  ([\w.]+)=(.*?) sensitive=", said, flags=re.MULTILINE))

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._config_tool(topic, "--alter", "--add-config", ",".join(f"{k}=[{v}]" for k, v in configs.items()))

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(
                '{"version": 1, "partitions": '
                f'[{{"topic": "{topic}", "partition": {partition}, "offset": {before}}}]}}'
            )
            file.flush()
            said = run_tool(f"{TOOLS}.DeleteRecordsCommand", *self._server, "--offset-json-file", file.name)
        if not re.search(rf"partition: {re.escape(topic)}-{partition}\tlow_watermark: \d+", said):
            raise Refused(Code.NOT_TOLD, said)

    def cluster(self) -> Cluster:
        said = run_tool(f"{TOOLS}.ClusterTool", "cluster-id", *self._server)
        identity = re.fullmatch(r"Cluster ID: (\S+)\n", said)
        assert identity, said
        said = run_tool(f"{TOOLS}.ClusterTool", "list-endpoints", *self._server)
        found = re.findall(r"^(\d+)\s+(\S+)\s+(\d+)\s", said, flags=re.MULTILINE)
        return Cluster(identity[1], {int(node): f"{host}:{port}" for node, host, port in found})


def _text(data: bytes | None) -> str:
    return NULL if data is None else data.decode()


def _line(message: Message) -> bytes:
    value, key, headers, _ = message
    named = ",".join(f"{name}:{_text(header)}" for name, header in headers) if headers else NULL
    return f"{named}\t{_text(key)}\t{_text(value)}\n".encode()


def _received(line: bytes) -> Received:
    time, partition, offset, headers, key, value = line.decode().split("\t")
    named = [] if headers == "NO_HEADERS" else [header.partition(":") for header in headers.split(",")]
    return Received(
        int(partition.removeprefix("Partition:")),
        int(offset.removeprefix("Offset:")),
        int(time.removeprefix("CreateTime:")),
        _bytes(value),
        _bytes(key),
        tuple((name, _bytes(text)) for name, _, text in named),
    )


def _bytes(text: str) -> bytes | None:
    return None if text == NULL else text.encode()


def _raise_refusal(said: str) -> None:
    for name, code in EXCEPTIONS.items():
        if f".{name}: " in said:
            raise Refused(code, said)
    if "Error while executing topic command" in said:  # which names no exception
        raise Refused(Code.NOT_TOLD, said)


def _raise_at_end(said: str) -> None:
    """The console consumer ends without a word where an offset is not there."""
    _raise_refusal(said)
    raise Refused(Code.NOT_TOLD, said)
