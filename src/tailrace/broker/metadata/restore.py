"""Restores metadata that a repair of the metadata log has given up, as far as the partitions' logs can tell.

Each log has the name, the id and the partition of its topic, and the producers that have written to it. So topics whose
creation is lost are restored, with as many partitions as have logs, and neither producer ids nor leader epochs are used
twice. Configs, and topics that were never written to, are not restored. The restored records are appended to the
metadata log as new changes.
"""

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator

from tailrace.broker.core.topics import RESERVED_LATE
from tailrace.broker.metadata.records import (
    ClusterCreated,
    MetadataRecord,
    PartitionsAdded,
    ProducerIdsReserved,
    StartedUncleanly,
    TopicCreated,
)
from tailrace.broker.metadata.state import Metadata
from tailrace.log.directory.admission import QUEUES_VERSION
from tailrace.log.directory.directory import DataDirectory

logger = logging.getLogger("tailrace.broker.metadata")


def new_cluster_id(random_bytes: Callable[[int], bytes]) -> str:
    return urlsafe_b64encode(random_bytes(16)).decode().rstrip("=")


def bring_back(
    directory: DataDirectory, metadata: Metadata, random_bytes: Callable[[int], bytes]
) -> list[MetadataRecord]:
    """Returns the records that are missing from the metadata, and can be derived from the logs."""
    records: list[MetadataRecord] = []
    if not metadata.cluster_id:
        records.append(ClusterCreated(cluster_id=new_cluster_id(random_bytes)))
    records += _topics(directory, metadata)
    epoch = max(log.leader_epoch for log in directory.logs.values())
    if epoch > metadata.unclean_starts:
        records.append(StartedUncleanly(count=epoch))
    used = max((number for log in directory.logs.values() for number in log.producers.producers), default=-1)
    if used >= metadata.next_producer_id:
        records.append(ProducerIdsReserved(next_producer_id=used + 1))
    for record in records:
        logger.warning("lost from the metadata log, restored from the partitions' logs: %s", record)
    return records


def _topics(directory: DataDirectory, metadata: Metadata) -> Iterator[MetadataRecord]:
    counts: dict[tuple[str, bytes], int] = {}
    for partition, log in directory.logs.items():
        if log.topic_id is not None and log.topic_id not in metadata.deleted:
            key = partition.topic, log.topic_id
            counts[key] = max(counts.get(key, 0), partition.partition + 1)
    for (name, topic_id), count in sorted(counts.items()):
        known = metadata.topics.get(name)
        if known is None:
            yield TopicCreated(
                topic_id=topic_id,
                name=name,
                partition_count=count,
                is_broker_owned=name in RESERVED_LATE and directory.has_format(QUEUES_VERSION),
            )
        elif known.topic_id == topic_id and known.partition_count < count:
            yield PartitionsAdded(topic_id=topic_id, partition_count=count)
