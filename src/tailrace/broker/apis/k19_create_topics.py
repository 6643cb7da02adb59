"""CreateTopics (key 19): creates topics, which can be used once the response arrives.

Behaviour: topics are independent: a refused one does not delay another. A name that appears twice is refused, and
answered once. There is one broker, so the replication factor is 1, or -1 for the default; partitions are given by their
number, by -1 for the default, or by an assignment of each to this broker. `validate_only` reports what would be
refused. A partition has nothing on disk until its first record.

Versions 2-7.
    4   -1 for the defaults (accepted in 2 and 3, too)      5   partitions, replicas and configs in the response
    6   refused if a quota is used up (before, the client is throttled)
    7   topic ids in the response; none from `validate_only`
Not done: `timeout_ms`; the response is sent when the topics are on disk.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tailrace.broker.configs.keys import parts_of
from tailrace.broker.configs.registry import ConfigSource, Entry, topic_entry
from tailrace.broker.configs.tables import TOPIC_KEYS
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.records import BacklogAnchored, ConfigChanged, MetadataRecord, TopicCreated
from tailrace.broker.metadata.topic_changes import DEFAULT, check_placement, check_replication_factor, create_topic
from tailrace.broker.quotas.mutations import Mutations
from tailrace.protocol.codec import Encoded, encode_structure
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import ZERO_UUID
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

CONFIGS_FROM = 5
GROUPS_CONFIG = "tailrace.backlog.groups"
REFUSED_FROM = 6


def create_topics(request: CreateTopicsRequest, call: Call, broker: "Broker") -> CreateTopicsResponse:
    creation = Creation(request.validate_only, call, broker)
    for name, count in Counter(topic.name for topic in request.topics).items():
        if count > 1:
            creation.refuse(name, Refused(ErrorCode.INVALID_REQUEST, f"{name!r} appears {count} times in the request"))
    for wanted in request.topics:
        if wanted.name not in creation.results:
            creation.add(wanted)
    if creation.changes and not request.validate_only:
        broker.metadata_log.write_or_refuse(creation.changes, creation.results.values(), call.now_ms)
    return CreateTopicsResponse(
        throttle_time_ms=creation.mutations.throttle_time_ms, topics=list(creation.results.values())
    )


class Creation:
    """The results of one request."""

    def __init__(self, validate_only: bool, call: Call, broker: "Broker") -> None:
        self.results: dict[str, CreatableTopicResult] = {}
        self.changes: list[MetadataRecord] = []
        self.mutations = Mutations(call, broker, refused_from=REFUSED_FROM)
        self._validate_only = validate_only
        self._broker = broker
        self._now_ms = call.now_ms
        self._version = call.version
        self._beside: dict[str, str] = {}
        self._default_configs = self._encode_defaults() if call.version >= CONFIGS_FROM else {}
        self._all_defaults = Encoded(len(self._default_configs), b"".join(self._default_configs.values()))

    def refuse(self, name: str, error: Refused) -> None:
        self.results[name] = CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)

    def add(self, wanted: CreatableTopic) -> None:
        broker = self._broker
        try:
            count = partition_count(wanted, broker)
            overrides = {config.name: config.value for config in wanted.configs}
            changes = create_topic(
                broker.metadata, wanted.name, count, overrides, broker.random_bytes, beside=self._beside
            )
            if not self._validate_only:
                self.mutations.add(count)
        except Refused as error:
            self.refuse(wanted.name, error)
            return
        created, *configs = changes
        assert isinstance(created, TopicCreated)
        self.changes += [*changes, *self._anchors(created, overrides)]
        self.results[wanted.name] = CreatableTopicResult(
            name=wanted.name,
            topic_id=ZERO_UUID if self._validate_only else created.topic_id,
            error_message=None,
            num_partitions=count,
            replication_factor=1,
            configs=self._configs(configs),
        )

    def _anchors(self, created: TopicCreated, overrides: Mapping[str, str | None]) -> Iterator[BacklogAnchored]:
        """Yields when the topic has named its groups: from then on they have time to show a sign of life."""
        for group in parts_of(overrides.get(GROUPS_CONFIG) or ""):
            yield BacklogAnchored(topic_id=created.topic_id, group=group, at_ms=self._now_ms, positions=[])

    def _encode_defaults(self) -> dict[str, bytes]:
        """Encodes the configs of a topic without its own for the response: once, for thousands of topics."""
        return {name: self._encode(topic_entry(name, {}, self._broker.configs)) for name in TOPIC_KEYS}

    def _configs(self, changes: Iterable[MetadataRecord]) -> Encoded:
        own = [change for change in changes if isinstance(change, ConfigChanged)]
        if not own or not self._default_configs:
            return self._all_defaults
        entries = (Entry(TOPIC_KEYS[change.key], change.value, ConfigSource.TOPIC) for change in own)
        fragments = self._default_configs | {entry.key.name: self._encode(entry) for entry in entries}
        return Encoded(len(fragments), b"".join(fragments.values()))

    def _encode(self, entry: Entry) -> bytes:
        described = CreatableTopicConfigs(name=entry.key.name, value=entry.text, config_source=entry.source)
        return encode_structure(described, CreateTopicsResponse, self._version)


def partition_count(wanted: CreatableTopic, broker: "Broker") -> int:
    """Raises Refused if the broker cannot have the requested partitions or replicas."""
    if not wanted.assignments:
        check_replication_factor(wanted.replication_factor)
        if wanted.num_partitions == DEFAULT:
            return broker.configs.number("num.partitions")
        return wanted.num_partitions
    if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "with an assignment, the number of partitions and the replication factor must be -1",
        )
    placed = sorted(wanted.assignments, key=lambda assignment: assignment.partition_index)
    if [assignment.partition_index for assignment in placed] != list(range(len(placed))):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0, without a gap")
    check_placement((assignment.broker_ids for assignment in placed), broker.node_id)
    return len(placed)


API = Api(
    ApiKey.CREATE_TOPICS,
    create_topics,
    elements_max=4_000,  # 80 ms
)
