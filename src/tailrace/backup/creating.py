"""Making a backup of a directory that a broker may be at work in.

The order of the logs makes the whole a state that could have been:

    1  the logs that speak of others, such as committed offsets: none of them points behind the end of a log
    2  the logs of topics, listed after that
    3  the metadata log: every topic that a log belongs to, every producer id that a batch has, is in it

A topic that was deleted meanwhile is in the metadata as deleted: its log, if it was copied before, is removed by the
broker that opens the copy.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tailrace import __version__
from tailrace.backup.copying import Copied, CutShort, sha256_of
from tailrace.backup.manifest import KnownSegments, Manifest, StoredFile, StoredLog, StoredSegment
from tailrace.backup.source import Cut, Look, SeenSegment, Source, agree, find_cut
from tailrace.backup.store import Store, WritableStore
from tailrace.backup.verifying import damage_of
from tailrace.log.checkpoints import FORMAT_FILE
from tailrace.log.errors import LogError
from tailrace.log.files import File, Files, join, read_whole
from tailrace.log.names import (
    INDEX,
    LOG,
    SNAPSHOT,
    SUMS,
    TIME_INDEX,
    TRANSACTION_INDEX,
    TopicPartition,
    numbered,
    parse_partition,
)
from tailrace.log.producer_snapshot import CorruptSnapshot, decode_snapshot
from tailrace.log.replay import snapshot_offsets
from tailrace.log.sums import ChunkSums, Prefix, Sums

METADATA_PARTITION = TopicPartition("__tailrace_metadata", 0)
INTERNAL_PREFIX = "__"
ROUNDS_MAX = 50
_PATIENT_ROUNDS = 3  # while segments that do not fit together may be just being replaced
_PATIENCE_S = 0.2


class NotADataDirectory(LogError):
    """There is nothing here that a broker of ours has written."""


class AnotherDirectory(LogError):
    """The backups that are there are of another data directory."""


class KeepsChanging(LogError):
    """A log is never the same for as long as it takes to copy it."""


@dataclass(slots=True)
class Plan:
    """What a backup would do, as far as that can be known beforehand."""

    logs: int = 0
    segments: int = 0
    bytes: int = 0
    segments_to_copy: int = 0
    bytes_to_copy: int = 0


@dataclass(slots=True)
class Result:
    manifest: Manifest
    notes: list[str] = field(default_factory=list)


def open_source(files: Files, path: str) -> Source:
    """Raises NotADataDirectory."""
    if not files.exists(join(path, FORMAT_FILE)) or not files.exists(join(path, str(METADATA_PARTITION))):
        raise NotADataDirectory(f"{path} is no data directory of tailrace's: it has no {METADATA_PARTITION}")
    return Source(files, path)


def partitions_in(files: Files, path: str, *, internal: bool) -> list[TopicPartition]:
    """The logs that are there now but for the metadata's: those that speak of others, or those of topics."""
    found = filter(None, map(parse_partition, files.directories_in(path)))
    return [name for name in found if name != METADATA_PARTITION and name.topic.startswith(INTERNAL_PREFIX) == internal]


def make_plan(source: Source, known: KnownSegments, has: Callable[[StoredFile], bool]) -> Plan:
    plan = Plan()
    names = [parse_partition(name) for name in source.files.directories_in(source.path)]
    for name in filter(None, names):
        if (look := source.look(name)) is None:
            continue
        plan.logs += 1
        for seen in look.segments:
            plan.segments += 1
            plan.bytes += seen.size
            if find_known(known, has, look, name, seen) is None:
                plan.segments_to_copy += 1
                plan.bytes_to_copy += seen.size
    return plan


def find_known(
    known: KnownSegments, has: Callable[[StoredFile], bool], look: Look, name: TopicPartition, seen: SeenSegment
) -> StoredSegment | None:
    """The segment in the store that is the same as this one, if all of it is there."""
    if not seen.is_summed:
        return None
    found = known.find(look.topic_id, str(name), seen.base_offset, seen.size, seen.sums_sha256)
    return found if found is not None and all(map(has, found.files)) else None


def check_directory(source: Source, store: Store) -> str:
    """The id of the data directory, which is the same for all backups in a store. Raises AnotherDirectory."""
    look = source.look(METADATA_PARTITION)
    directory_id = (look.topic_id if look else None) or ""
    if (ids := store.ids()) and (kept := store.manifest(ids[-1])).directory_id != directory_id:
        raise AnotherDirectory(
            f"{store.path} has backups of another data directory (of {kept.source}): choose another place for these"
        )
    return directory_id


class Creation:
    """One backup being made. `run` does it all."""

    def __init__(
        self,
        source: Source,
        store: WritableStore,
        copied: Copied,
        *,
        now_ms: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._store = store
        self._copied = copied
        self._now_ms = now_ms
        self._sleep = sleep
        self._known = store.known_segments()
        self._suspects: list[str] = []
        self._notes: list[str] = []
        began_ms = now_ms()
        self._manifest = Manifest(
            id=_new_id(began_ms, store.ids()),
            source=source.path,
            directory_id=check_directory(source, store),
            data_format=_format_of(source),
            began_ms=began_ms,
            tailrace=__version__,
        )

    def run(self) -> Result:
        """Afterwards the backup is there. Raises LogError, and OSError where a disk refuses; then it is not, and
        what was copied is found by the next one.
        """
        files, path = self._source.files, self._source.path
        self._add(partitions_in(files, path, internal=True))
        self._add(partitions_in(files, path, internal=False))
        self._add([METADATA_PARTITION])
        manifest = self._manifest
        manifest.damage = [damage.as_json() for damage in damage_of(self._store, manifest, self._suspects, Copied())]
        manifest.copied_bytes = self._copied.stored_bytes
        manifest.ended_ms = self._now_ms()
        self._store.commit(manifest)
        self._store.collect()
        return Result(manifest, self._notes)

    def _add(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            log = self._log(name)
            if log is not None:
                self._manifest.logs.append(log)
            else:
                self._notes.append(f"{name} was deleted while the backup was made, or just being created")

    def _log(self, name: TopicPartition) -> StoredLog | None:
        """The log as it is now, all of its bytes in the store; None where it is gone, or not there yet."""
        for number in range(ROUNDS_MAX):
            before = self._source.look(name)
            if before is None or not (before.topic_id or any(segment.size for segment in before.segments)):
                return None
            if before.is_being_swapped or (not before.is_contiguous and number < _PATIENT_ROUNDS):
                self._sleep(_PATIENCE_S)
                continue
            copy = LogCopy(self._source, self._store, self._copied, self._known, name, before)
            copy.run()
            after = self._source.look(name)
            if after is None:
                return None
            lost = agree(before, after)
            if lost is not None and copy.has_all_from(lost):
                if copy.is_suspect:
                    self._suspects.append(str(name))
                return copy.stored(lost, after.start_offset)
        raise KeepsChanging(
            f"{name} does not stand still: either its segments are replaced faster than they can be copied, or a "
            "compaction of it was cut short, which the next start of the broker finishes. Try again then"
        )


class LogCopy:
    """One log on its way into the store, according to one look at it."""

    def __init__(
        self,
        source: Source,
        store: WritableStore,
        copied: Copied,
        known: KnownSegments,
        name: TopicPartition,
        look: Look,
    ) -> None:
        self.look = look
        self.is_suspect = not look.is_contiguous  # or a segment is not what its sums say, or has none
        self._source = source
        self._files = source.files
        self._directory = join(source.path, str(name))
        self._store = store
        self._copied = copied
        self._known = known
        self._name = name
        self._segments: list[StoredSegment | None] = []  # None in the place of one that was gone
        self._epochs: tuple[tuple[int, int], ...] | None = None
        self._snapshots: list[tuple[int, StoredFile]] = []

    def run(self) -> None:
        """Afterwards all that is still there is in the store."""
        seen = self.look.segments
        bases = [segment.base_offset for segment in seen]
        following = [*bases[1:], None]
        self._segments = [self._segment(segment, behind) for segment, behind in zip(seen, following, strict=False)]
        last = self._segments[-1] if self._segments else None
        self._epochs = self._source.epochs(self._name, last.next_offset) if last else None
        self._snapshots = self._find_snapshots(bases) if last else []

    def has_all_from(self, number: int) -> bool:
        return None not in self._segments[number:]

    def stored(self, first: int, latest_start: int | None) -> StoredLog:
        """The log without the segments before number `first`, which were deleted meanwhile."""
        segments = tuple(segment for segment in self._segments[first:] if segment is not None)
        base = segments[0].base_offset if segments else 0
        start = base if self.look.start_offset is None else self.look.start_offset
        if base > start:
            start = max(start, latest_start or 0)
        end = segments[-1].next_offset if segments else start
        return StoredLog(
            name=str(self._name),
            topic_id=self.look.topic_id,
            start_offset=min(start, end),
            end_offset=end,
            recovery_point=self.look.recovery_point,
            epochs=self._epochs,
            segments=segments,
            snapshots=tuple(file for offset, file in self._snapshots if offset >= base),
        )

    def _segment(self, seen: SeenSegment, following: int | None) -> StoredSegment | None:
        found = find_known(self._known, self._store.has, self.look, self._name, seen)
        if found is not None:
            return found
        file = self._files.open(self._path(seen, LOG))
        try:
            file.pin()
        except FileNotFoundError:
            return None
        try:
            return self._copy(file, seen, following)
        except CutShort:  # another file has its name by now
            return None
        finally:
            file.unpin()
            file.close()

    def _copy(self, file: File, seen: SeenSegment, following: int | None) -> StoredSegment:
        cut, chunks = self._cut(file, seen, following), ChunkSums()
        log = self._store.put(file, cut.position, self._copied, chunks)
        segment = StoredSegment(seen.base_offset, cut.next_offset, (log, *self._derived(seen)))
        if seen.sums is not None and seen.is_summed and chunks.sums == seen.sums.chunks:
            self._known.add(self.look.topic_id, str(self._name), segment)
            self._store.note(self.look.topic_id, str(self._name), segment)
        elif seen.is_summed or not cut.is_sound:
            self.is_suspect = True
        return segment

    def _cut(self, file: File, seen: SeenSegment, following: int | None) -> Cut:
        if seen.sums is not None and seen.is_summed:
            return Cut(seen.size, seen.sums.next_offset, True)
        if following is not None:
            return Cut(seen.size, following, False)  # nobody vouches for it yet
        return find_cut(file, seen, self.look.recovery_point or 0)

    def _derived(self, seen: SeenSegment) -> list[StoredFile]:
        """What is derived from the segment, if all of it is what its sums say. Else it is rebuilt when it is wanted."""
        data = read_whole(self._files, self._path(seen, SUMS)) or b""
        sums = seen.sums
        if sums is None or sha256_of(data) != seen.sums_sha256:
            return []
        stored = [(SUMS, data)]
        for suffix, prefix in _prefixes(sums):
            derived = read_whole(self._files, self._path(seen, suffix)) or b""
            if not prefix.matches(derived):
                return []
            if prefix.size:
                stored.append((suffix, derived[: prefix.size]))
        return [
            self._store.put_whole(numbered(seen.base_offset, suffix), derived, self._copied)
            for suffix, derived in stored
        ]

    def _path(self, seen: SeenSegment, suffix: str) -> str:
        return join(self._directory, numbered(seen.base_offset, suffix))

    def _find_snapshots(self, bases: list[int]) -> list[tuple[int, StoredFile]]:
        """The newest that recovery may use, and the newest before the last segment, should that one's own files be
        lost.
        """
        newest = max(self.look.recovery_point or 0, self.look.start_offset or 0)
        try:
            offsets = [offset for offset in snapshot_offsets(self._files, self._directory) if offset >= bases[0]]
        except FileNotFoundError:  # the log is gone
            return []
        found: dict[int, StoredFile] = {}
        for at_most in {newest, min(newest, bases[-1])}:
            usable = (offset for offset in offsets if offset <= at_most)
            next((offset for offset in usable if offset in found or self._take_snapshot(offset, found)), None)
        return sorted(found.items())

    def _take_snapshot(self, offset: int, found: dict[int, StoredFile]) -> bool:
        """Says whether it is whole."""
        name = numbered(offset, SNAPSHOT)
        data = read_whole(self._files, join(self._directory, name)) or b""
        try:
            decode_snapshot(data)
        except CorruptSnapshot:
            return False
        found[offset] = self._store.put_whole(name, data, self._copied)
        return True


def _prefixes(sums: Sums) -> list[tuple[str, Prefix]]:
    return [(INDEX, sums.index), (TIME_INDEX, sums.time_index), (TRANSACTION_INDEX, sums.transaction_index)]


def _format_of(source: Source) -> int:
    text = (read_whole(source.files, join(source.path, FORMAT_FILE)) or b"").strip()
    if not text.isdigit():
        raise NotADataDirectory(f"{source.path} has a {FORMAT_FILE} that says {text.decode(errors='replace')!r}")
    return int(text)


def _new_id(now_ms: int, taken: list[str]) -> str:
    """The time, so that the order of names is that of backups, also where a clock was set back."""
    name = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S") + f".{now_ms % 1000:03}Z"
    return name if not taken or name > taken[-1] else taken[-1] + "+"
