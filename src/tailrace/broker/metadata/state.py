"""The state that the metadata log describes: topics, configs, quotas, the cluster id, producer ids.

`replay` is the only way to change it, while running and while starting, so a second process that replays the same
records has an equal state. The state includes all that was *appended* to the log; a response that depends on it leaves
when that is flushed (`MetadataLog`).
"""

import logging
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tailrace.broker.configs.groups import group_key
from tailrace.broker.configs.keys import ConfigKey, InvalidConfig
from tailrace.broker.configs.registry import COMPRESSION_KEYS, BrokerConfigs, broker_key, topic_key
from tailrace.broker.core.topics import Topic, as_metric
from tailrace.broker.metadata import records
from tailrace.broker.metadata.records import MetadataRecord
from tailrace.broker.quotas.client_quotas import ClientQuotas

logger = logging.getLogger("tailrace.broker.metadata")

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LOGGER_RESOURCE = 8
GROUP_RESOURCE = 32
POLICY_KEYS = ("cleanup.policy", "log.cleanup.policy")

Value = TypeVar("Value")


class Metadata:
    def __init__(self, configs: BrokerConfigs | None = None) -> None:
        self.configs = configs or BrokerConfigs()
        self.cluster_id = ""
        self.unclean_starts = 0
        self.next_producer_id = 0
        self.quotas = ClientQuotas()
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.deleted: dict[bytes, str] = {}  # names of deleted topics, by id; an id is never reused
        self.compacted_once: set[str] = set()  # topics that have, or had, a policy with `compact`; "" for a default
        self._names_as_metrics: dict[str, str] = {}  # topic names, by their names in metrics
        self.group_overrides: dict[str, dict[str, str]] = {}  # configs of groups, by group id
        self.revision = 0  # increases with every change: invalidates caches

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of all that is appended from now on."""
        return self.unclean_starts

    def colliding(self, name: str) -> str | None:
        """Returns a topic whose name equals `name` in metrics, where dots become underscores; None if there is none."""
        return self._names_as_metrics.get(as_metric(name))

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions; 0 if there is no such topic."""
        found = self.topics.get(topic)
        return found.partition_count if found is not None else 0

    def replay(self, record: MetadataRecord) -> None:
        self.revision += 1
        _REPLAY[type(record)](self, record)

    def _cluster_created(self, record: records.ClusterCreated) -> None:
        self.cluster_id = record.cluster_id

    def _started_uncleanly(self, record: records.StartedUncleanly) -> None:
        self.unclean_starts = record.count

    def _topic_created(self, record: records.TopicCreated) -> None:
        topic = Topic(
            record.topic_id,
            record.name,
            record.partition_count,
            self.configs,
            is_created_by_broker=record.is_broker_owned,
        )
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
        self._names_as_metrics[as_metric(record.name)] = record.name

    def _partitions_added(self, record: records.PartitionsAdded) -> None:
        self.topics_by_id[record.topic_id].add_partitions(record.partition_count)

    def _topic_deleted(self, record: records.TopicDeleted) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        del self._names_as_metrics[as_metric(topic.name)]
        self.deleted[record.topic_id] = topic.name

    def _config_changed(self, record: records.ConfigChanged) -> None:
        if record.key in POLICY_KEYS and "compact" in (record.value or ""):
            self.compacted_once.add(record.resource_name if record.resource_type == TOPIC_RESOURCE else "")
        if record.resource_type == TOPIC_RESOURCE:
            topic = self.topics[record.resource_name]
            _set(topic.overrides, record.key, _valid_value(record))
            topic.configure(self.configs)
            topic.forget_anchors()
        elif record.resource_type == GROUP_RESOURCE:
            overrides = self.group_overrides.setdefault(record.resource_name, {})
            _set(overrides, record.key, _valid_value(record))
            if not overrides:
                del self.group_overrides[record.resource_name]
        else:
            before = self.configs.topic_defaults
            self.configs.set_at_run_time(record.resource_name, record.key, _valid_value(record))
            if self.configs.topic_defaults != before or record.key in COMPRESSION_KEYS:
                for topic in self.topics.values():
                    topic.configure(self.configs)

    def _producer_ids_reserved(self, record: records.ProducerIdsReserved) -> None:
        self.next_producer_id = record.next_producer_id

    def _client_quota_changed(self, record: records.ClientQuotaChanged) -> None:
        entity = tuple((part.kind, part.name) for part in record.entity)
        self.quotas.set(entity, record.key, None if record.is_removed else record.value)

    def _backlog_anchored(self, record: records.BacklogAnchored) -> None:
        offsets = {position.partition: position.offset for position in record.positions}
        self.topics_by_id[record.topic_id].anchor(record.group, record.at_ms, offsets)

    def describe(self) -> dict[str, object]:
        """Returns the state in plain values. Two replays of one log must agree on it."""
        return {
            "cluster_id": self.cluster_id,
            "unclean_starts": self.unclean_starts,
            "next_producer_id": self.next_producer_id,
            "topics": {
                topic.name: (topic.topic_id.hex(), topic.partition_count, dict(sorted(topic.overrides.items())))
                for topic in self.topics.values()
            },
            "deleted": sorted(topic_id.hex() for topic_id in self.deleted),
            "broker_configs": {
                broker: dict(sorted(values.items())) for broker, values in sorted(self.configs.at_run_time.items())
            },
            "group_configs": {
                group: dict(sorted(values.items())) for group, values in sorted(self.group_overrides.items())
            },
            "anchors": {
                topic.name: dict(sorted(topic.anchors.items())) for topic in self.topics.values() if topic.anchors
            },
            "client_quotas": {
                str(entity): dict(sorted(values.items())) for entity, values in self.quotas.values.items()
            },
        }


class MetadataCache(Generic[Value]):
    """Values computed from the metadata, kept until the metadata changes."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._revision = -1
        self._values: dict[Hashable, Value] = {}

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Returns the value for `key` as of now; computes it with `make` if it is missing."""
        if self._revision != self._metadata.revision:
            self._revision = self._metadata.revision
            self._values.clear()
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = make()
        return found


def _valid_value(record: records.ConfigChanged) -> str | None:
    """Returns the recorded value, or None if this release does not accept it: a record that was written once must never
    keep a directory from opening.
    """
    if record.value is None:
        return None
    whose, key_of = _RESOURCES.get(record.resource_type, ("broker", broker_key))
    try:
        key_of(record.key).parse(record.value)
    except InvalidConfig as error:
        whose = f"{whose} {record.resource_name}".rstrip()
        logger.warning("%s: ignored a stored config value: %s", whose, error)
        return None
    return record.value


_RESOURCES: dict[int, tuple[str, Callable[[str], ConfigKey]]] = {
    TOPIC_RESOURCE: ("topic", topic_key),
    GROUP_RESOURCE: ("group", group_key),
}


def _set(values: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


_REPLAY: dict[type[MetadataRecord], Callable[..., None]] = {
    records.ClusterCreated: Metadata._cluster_created,
    records.StartedUncleanly: Metadata._started_uncleanly,
    records.TopicCreated: Metadata._topic_created,
    records.PartitionsAdded: Metadata._partitions_added,
    records.TopicDeleted: Metadata._topic_deleted,
    records.ConfigChanged: Metadata._config_changed,
    records.ProducerIdsReserved: Metadata._producer_ids_reserved,
    records.ClientQuotaChanged: Metadata._client_quota_changed,
    records.BacklogAnchored: Metadata._backlog_anchored,
}
