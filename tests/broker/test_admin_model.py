"""Topics are created, deleted, altered, written to and cut, in any order, with stops and kills in between: the broker
has what a few dictionaries have, and what its metadata log says.
"""

from typing import Any, TypeVar

from brokers import LocalBroker
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from logs import DATA, memory_files

from tailrace.broker.core.topics import LOSSES_TOPIC
from tailrace.broker.metadata.log import replay_all
from tailrace.broker.metadata.state import Metadata
from tailrace.broker.quotas.client_quotas import Entity
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tailrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tailrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tailrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

NAMES = st.sampled_from(["a", "b", "c"])
KEYS = st.sampled_from(["retention.ms", "segment.ms", "max.message.bytes"])
VALUES = st.sampled_from(["2000", "3000"])
STEPS = st.integers(0, 4)
ENTITIES = st.sampled_from([(("user", "u"),), (("client-id", None), ("user", "u")), (("client-id", "c"),)])
QUOTAS = st.sampled_from(["producer_byte_rate", "request_percentage"])

Value = TypeVar("Value")


class Topic:
    """What the model knows of one."""

    def __init__(self, topic_id: bytes, partitions: int, configs: dict[str, str]) -> None:
        self.topic_id = topic_id
        self.configs = configs
        self.values: list[list[bytes]] = [[] for _ in range(partitions)]
        self.starts = [0] * partitions


class Administration(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = memory_files()
        self.broker = LocalBroker(DATA, files=self.files)
        self.topics: dict[str, Topic] = {}
        self.for_all: dict[str, str] = {}
        self.quotas: dict[Entity, dict[str, float]] = {}
        self.ids: set[bytes] = set()
        self.written = 0

    def teardown(self) -> None:
        self.broker.close()

    @rule(name=NAMES, partitions=st.integers(1, 3), key=KEYS, value=VALUES, validate_only=st.booleans())
    def create(self, name: str, partitions: int, key: str, value: str, validate_only: bool) -> None:
        config = CreatableTopicConfig(name=key, value=value)
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=[config])
        request = CreateTopicsRequest(topics=[wanted], validate_only=validate_only)
        (result,) = self.broker.ask(request, 7).topics
        assert result.error_code == (ErrorCode.TOPIC_ALREADY_EXISTS if name in self.topics else 0)
        if name not in self.topics and not validate_only:
            assert result.topic_id not in self.ids, "an id is never used again"
            self.ids.add(result.topic_id)
            self.topics[name] = Topic(result.topic_id, partitions, {key: value})

    def _deletion(self, name: str, by_id: bool) -> DeleteTopicsRequest:
        known = self.topics.get(name)
        if by_id and known is not None:
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=known.topic_id)])
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])

    @rule(name=NAMES, by_id=st.booleans())
    def delete(self, name: str, by_id: bool) -> None:
        (result,) = self.broker.ask(self._deletion(name, by_id), 6).responses
        assert result.error_code == (0 if name in self.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.topics.pop(name, None)

    @precondition(lambda self: self.topics)
    @rule(name=NAMES, by_id=st.booleans(), steps=STEPS, creates=st.booleans())
    def kill_while_deleting(self, name: str, by_id: bool, steps: int, creates: bool) -> None:
        """What was written is there after a kill, answered or not. Perhaps it is created again meanwhile."""
        self.broker.hold_jobs = True
        self.broker.begin(self._deletion(name, by_id), 6)
        if creates:
            wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            self.broker.begin(CreateTopicsRequest(topics=[wanted]), 7)
        for _ in range(steps):
            self._one_job()
        self.broker.hold_jobs = False
        self.broker.kill()
        self.topics.pop(name, None)
        if creates:
            topic_id = self.broker.broker.metadata.topics[name].topic_id
            assert topic_id not in self.ids
            self.ids.add(topic_id)
            self.topics[name] = Topic(topic_id, 1, {})

    def _one_job(self) -> None:
        if self.broker._jobs:
            job, finish = self.broker._jobs.popleft()
            job.run()
            finish()
        elif (flush := self.broker.broker.flushes.next_job()) is not None:
            flush.run()
            self.broker.broker.flushed(flush)

    @rule(name=NAMES, count=st.integers(1, 5))
    def add_partitions(self, name: str, count: int) -> None:
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
        (result,) = self.broker.ask(CreatePartitionsRequest(topics=[wanted]), 3).results
        topic = self.topics.get(name)
        if topic is None:
            assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        added = count - len(topic.values)
        assert result.error_code == (0 if added > 0 else ErrorCode.INVALID_PARTITIONS)
        topic.values += [[] for _ in range(added)]
        topic.starts += [0] * added

    def _alter(self, kind: int, name: str, key: str, value: str | None) -> int:
        change = AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
        (response,) = self.broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        return int(response.error_code)

    @rule(name=NAMES, key=KEYS, value=st.none() | VALUES)
    def alter_topic(self, name: str, key: str, value: str | None) -> None:
        code = self._alter(2, name, key, value)
        assert code == (0 if name in self.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if name in self.topics:
            set_or_drop(self.topics[name].configs, key, value)

    @rule(entity=ENTITIES, key=QUOTAS, value=st.none() | st.sampled_from([1.0, 2.0]), validate_only=st.booleans())
    def alter_quotas(self, entity: Entity, key: str, value: float | None, validate_only: bool) -> None:
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        change = OpData(key=key, value=value or 0.0, remove=value is None)
        request = AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=[change])], validate_only=validate_only)
        (result,) = self.broker.ask(request, 1).entries
        assert result.error_code == 0
        if not validate_only:
            values = self.quotas.setdefault(entity, {})
            set_or_drop(values, key, value)
            if not values:
                del self.quotas[entity]

    @rule(key=st.sampled_from(["log.roll.ms", "message.max.bytes"]), value=st.none() | VALUES)
    def alter_all_brokers(self, key: str, value: str | None) -> None:
        assert self._alter(4, "", key, value) == 0
        set_or_drop(self.for_all, key, value)

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def produce(self, data: Any) -> None:
        name, partition = self._some_partition(data)
        self.written += 1
        values = self.topics[name].values[partition]
        answer = self.broker.produce(b"%d" % self.written, topic=name, partition=partition)
        assert (answer.error_code, answer.base_offset) == (0, len(values))
        values.append(b"%d" % self.written)

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def delete_records(self, data: Any) -> None:
        name, partition = self._some_partition(data)
        topic = self.topics[name]
        offset = data.draw(st.integers(0, len(topic.values[partition])))
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[wanted])])
        result = self.broker.ask(request, 2).topics[0].partitions[0]
        topic.starts[partition] = max(offset, topic.starts[partition])
        assert (result.error_code, result.low_watermark) == (0, topic.starts[partition])

    def _some_partition(self, data: Any) -> tuple[str, int]:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        return name, data.draw(st.integers(0, len(self.topics[name].values) - 1))

    @rule()
    def restart(self) -> None:
        before = self.broker.broker.metadata.describe()
        self.broker.restart()
        assert self.broker.broker.metadata.describe() == before

    @rule()
    def kill(self) -> None:
        before = self.broker.broker.metadata.describe()
        self.broker.kill()
        after = self.broker.broker.metadata.describe()
        assert after.pop("unclean_starts") == int(str(before.pop("unclean_starts"))) + 1
        assert after == before

    @invariant()
    def what_the_log_says_is_what_the_broker_has(self) -> None:
        replayed = Metadata()
        replay_all(self.broker.broker.metadata_log.log, replayed)
        assert replayed.describe() == self.broker.broker.metadata.describe()

    @invariant()
    def what_the_broker_has_is_what_was_asked_for(self) -> None:
        metadata = self.broker.broker.metadata
        assert metadata.topics.keys() - {"__tailrace_metadata", LOSSES_TOPIC} == self.topics.keys()
        assert metadata.configs.at_run_time == ({"": self.for_all} if self.for_all else {})
        assert metadata.quotas.values == self.quotas
        roll_ms = self.for_all.get("log.roll.ms", "604800000")
        for name, topic in self.topics.items():
            found = metadata.topics[name]
            assert (found.topic_id, found.partition_count) == (topic.topic_id, len(topic.values))
            assert found.overrides == topic.configs
            assert found.config.log.segment_ms == int(topic.configs.get("segment.ms", roll_ms))

    @invariant()
    def every_record_is_there_and_no_other(self) -> None:
        for name, topic in self.topics.items():
            for index, values in enumerate(topic.values):
                start = topic.starts[index]
                found: list[bytes] = []
                while (more := self.broker.values(name, index, start + len(found))) != []:
                    found += more
                assert found == values[start:], f"{name}-{index} from {start}"

    @invariant()
    def nothing_is_left_of_what_was_deleted(self) -> None:
        kept = {
            f"{name}-{index}"
            for name, topic in self.topics.items()
            for index, values in enumerate(topic.values)
            if values
        }
        found = set(self.files.directories_in(DATA)) - {f"{LOSSES_TOPIC}-0"}  # there is one once records were deleted
        assert found == kept | {"__tailrace_metadata-0"}


def set_or_drop(values: dict[str, Value], key: str, value: Value | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


TestAdministration = Administration.TestCase
TestAdministration.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
