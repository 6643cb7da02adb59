"""Finds logs that were never compacted, by their history in the metadata log: there an offset gap is damage.

The checksum file of a segment records whether it may have gaps. Where that file is lost, only the history of the
topic's configs is left (`log/tools/compaction_history.py` does the same for tools that read a directory offline).
"""

from tailrace.broker.core.topics import METADATA_TOPIC
from tailrace.broker.metadata.state import Metadata
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.names import TopicPartition


def rule_out_gaps(directory: DataDirectory, metadata: Metadata) -> None:
    """Marks gaps as damage in every log that was never compacted. The metadata log must have been replayed entirely."""
    metadata_log = directory.logs[TopicPartition(METADATA_TOPIC, 0)]
    if metadata_log.recorded_gaps or "" in metadata.compacted_once:
        return  # configs were lost, or any topic may have had `compact` as its default
    for name, log in directory.logs.items():
        topic = metadata.topics.get(name.topic)
        if topic is None or topic.is_internal or topic.config.needs_keys or name.topic in metadata.compacted_once:
            continue
        if not log.compacted_to:
            log.rule_out_gaps()
