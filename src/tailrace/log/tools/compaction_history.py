"""Determines whether a partition can ever have been compacted, by what a data directory proves: for offline tools.

A segment without its checksum file does not tell whether it may have gaps between offsets. Where compaction can be
ruled out, a gap is damage. It is ruled out if all of these hold:

    the directory has the current format, so that no other broker's files are in it
    `cleaner-offset-checkpoint` can be read and does not name the partition
    the metadata log can be read from its first offset on and names the topic, and no record of it gives the topic, or
    the brokers' default, a cleanup policy with `compact`; internal topics are compacted without such a record, but the
    metadata log never is

The broker owns the format of the metadata log's records, and this layer cannot decode them. It searches them for bytes
instead: a record with `cleanup.policy`, `compact` and the name of the topic, or of the brokers' key, counts.
"""

from functools import cached_property

from tailrace.log.directory.admission import BASE_VERSION, FORMAT_VERSION
from tailrace.log.disk.interface import Files, join, read_whole
from tailrace.log.files.checkpoints import FORMAT_FILE
from tailrace.log.files.directory_state import DirectoryState
from tailrace.log.files.journal_file import read_journal
from tailrace.log.layout.errors import JournalUnreadable
from tailrace.log.layout.names import TopicPartition
from tailrace.log.scan.scan import FoundBatch
from tailrace.log.tools.survey import Survey
from tailrace.records.errors import CorruptBatch
from tailrace.records.record import decode_records

METADATA = TopicPartition("__tailrace_metadata", 0)
_INTERNAL_PREFIX = "__"
_TOPIC_KEY, _BROKER_KEY, _COMPACT = b"cleanup.policy", b"log.cleanup.policy", b"compact"


class MetadataHistory:
    """The `CompactionHistory` of one data directory, from its metadata log, which is read on first use."""

    def __init__(self, files: Files, path: str, state: DirectoryState) -> None:
        self._files = files
        self._path = path
        self._state = state

    def rules_out(self, partition: TopicPartition) -> bool:
        """Returns whether this partition was certainly never compacted."""
        if not self._is_current or partition in (self._state.cleaner_offsets or {}):
            return False
        if partition.topic.startswith(_INTERNAL_PREFIX):
            return partition == METADATA
        name, records = partition.topic.encode(), self._records
        policies = [record for record in records if _TOPIC_KEY in record and _COMPACT in record]
        is_compacted = any(name in record or _BROKER_KEY in record for record in policies)
        return any(name in record for record in records) and not is_compacted

    @cached_property
    def _is_current(self) -> bool:
        written = read_whole(self._files, join(self._path, FORMAT_FILE)) or b""
        is_current = written.strip().isdigit() and BASE_VERSION <= int(written) <= FORMAT_VERSION
        return is_current and self._state.cleaner_offsets is not None

    @cached_property
    def _records(self) -> list[bytes]:
        """Returns the values of all records of the metadata log; none if some of them cannot be read."""
        place = self._state.partition_directory(join(self._path, str(METADATA)), METADATA)
        values: list[bytes] = []
        try:
            survey = Survey(self._files, place)
            for finding in survey:
                if not isinstance(finding, FoundBatch):
                    return []
                values += (record.value or b"" for record in decode_records(finding.window, finding.at))
            journaled = [] if self._state.clean else read_journal(self._files, self._path)
        except (CorruptBatch, JournalUnreadable, OSError):
            return []
        if survey.start_offset or survey.gaps:
            return []
        return values + [bytes(part.data) for part in journaled]  # whole batches, which the log may lack
