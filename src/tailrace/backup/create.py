"""Creates a backup of a directory that a broker may be working in.

The order of the logs makes the backup a state that the directory could have had:

    1  the transaction log: all logs behind it end where its decisions end (`decisions`)
    2  internal topics that refer to other logs, such as committed offsets: none of them points past the end of a log,
       but where transactions make that end earlier; the first start after a restore moves them back
    3  the logs of topics, listed after that
    4  the metadata log: it has every topic that a log belongs to, and every producer id that a batch has

The metadata log marks a topic that was deleted meanwhile as deleted: the broker that opens the copy removes its log, if
it was copied before.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tailrace import __version__
from tailrace.backup.copy import Copied
from tailrace.backup.decisions import (
    TRANSACTION_TOPIC,
    Decision,
    Noted,
    before_undecided,
    decisions_in,
    has_only_grown,
    note,
)
from tailrace.backup.log_copy import LogCopy, find_known
from tailrace.backup.manifest import KnownSegments, Manifest, StoredFile, StoredLog
from tailrace.backup.source import Look, Source, agree
from tailrace.backup.store import Store, WritableStore
from tailrace.backup.verify import damage_of
from tailrace.log.disk.interface import Files, join, read_whole
from tailrace.log.files.checkpoints import FORMAT_FILE
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TopicPartition, parse_partition

METADATA_PARTITION = TopicPartition("__tailrace_metadata", 0)
LOSSES_PARTITION = TopicPartition("__tailrace_losses", 0)
INTERNAL_PREFIX = "__"
ROUNDS_MAX = 50
_ATTEMPTS_MAX = 5  # at a whole backup
_PATIENT_ROUNDS = 3  # while a swap may explain segments that do not fit together
_PATIENCE_S = 0.2
_STUCK_ROUNDS = 25  # after so many rounds without progress, a swap was interrupted


class NotADataDirectory(LogError):
    """The directory is not a data directory of tailrace."""


class AnotherDirectory(LogError):
    """The backup directory holds backups of another data directory."""


class KeepsChanging(LogError):
    """A log changes faster than it can be copied."""


class CompactedBehindEnd(Exception):
    """A log was compacted with records behind the marker at which it is to end in this backup."""


@dataclass(slots=True)
class Plan:
    """The files that a backup would copy, as far as they are known beforehand."""

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
        raise NotADataDirectory(f"{path} is not a data directory of tailrace: it has no {METADATA_PARTITION}")
    return Source(files, path)


def partitions_in(files: Files, path: str, *, internal: bool) -> list[TopicPartition]:
    """Lists the logs without the metadata log: those of internal topics, or those of other topics."""
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


def check_directory(source: Source, store: Store) -> str:
    """Returns the id of the data directory, which all backups in a store share. Raises AnotherDirectory."""
    look = source.look(METADATA_PARTITION)
    directory_id = (look.topic_id if look else None) or ""
    for kept in store.manifests()[0][-1:]:
        if kept.directory_id != directory_id:
            raise AnotherDirectory(
                f"{store.path} has backups of another data directory (of {kept.source}): choose another directory"
            )
    return directory_id


class Creation:
    """Makes one backup, with `run`."""

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
        self._noted: dict[TopicPartition, Noted] = {}  # all logs, before the transaction log was copied
        self._decided: set[Decision] = set()
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
        """Makes the backup; on return it is durable. Raises LogError, and OSError when a disk fails: then there is no
        new backup, and the next run reuses what was copied.
        """
        for _ in range(_ATTEMPTS_MAX):
            with suppress(CompactedBehindEnd):
                self._copy_logs()
                return self._commit()
        raise KeepsChanging(
            "the log of a compacted topic is compacted faster than all logs are copied. Try again later"
        )

    def _copy_logs(self) -> None:
        """Raises CompactedBehindEnd if that has to begin again."""
        files, path = self._source.files, self._source.path
        self._manifest.logs, self._suspects, self._notes, self._decided = [], [], [], set()
        self._add_decisions()
        internal = partitions_in(files, path, internal=True)
        self._add(name for name in internal if name != LOSSES_PARTITION and name.topic != TRANSACTION_TOPIC)
        self._add(partitions_in(files, path, internal=False))
        self._add([LOSSES_PARTITION] if files.exists(join(path, str(LOSSES_PARTITION))) else [])  # all that they lack
        self._add([METADATA_PARTITION])

    def _commit(self) -> Result:
        manifest = self._manifest
        manifest.data_format = _format_of(self._source)  # the first transaction may have raised it meanwhile
        manifest.damage = [damage.as_json() for damage in damage_of(self._store, manifest, self._suspects, Copied())]
        manifest.copied_bytes = self._copied.stored_bytes
        manifest.ended_ms = self._now_ms()
        self._store.commit(manifest)
        self._store.collect()
        return Result(manifest, self._notes)

    def _add_decisions(self) -> None:
        """Notes the end of each log, and copies the transaction log; again, if compaction has removed some of it, or it
        was created meanwhile.
        """
        for _ in range(ROUNDS_MAX):
            before = {name: self._source.look(name) for name in self._transaction_logs()}
            self._noted = self._note_logs()
            names = self._transaction_logs()
            logs = [self._log(name) for name in names]
            after = [self._source.look(name) for name in names]
            if all(map(has_only_grown, map(before.get, names), after)):
                break
        else:
            raise KeepsChanging("cannot copy the transaction log: it is compacted again and again. Try again later")
        for name, log, look in zip(names, logs, after, strict=True):
            if log is not None and look is not None:
                self._decided |= decisions_in(self._source, name, look, log.end_offset)
                self._manifest.logs.append(log)

    def _transaction_logs(self) -> list[TopicPartition]:
        internal = partitions_in(self._source.files, self._source.path, internal=True)
        return [name for name in internal if name.topic == TRANSACTION_TOPIC]

    def _note_logs(self) -> dict[TopicPartition, Noted]:
        files, path = self._source.files, self._source.path
        found = {}
        for name in [*partitions_in(files, path, internal=True), *partitions_in(files, path, internal=False)]:
            with suppress(FileNotFoundError):  # deleted meanwhile
                if (noted := note(self._source, name)) is not None:
                    found[name] = noted
        return found

    def _look(self, name: TopicPartition, *, past_swaps: bool) -> Look | None:
        """Returns the log as it is to be copied: up to the first marker that commits what the backup does not decide.
        Raises CompactedBehindEnd.
        """
        for _ in range(ROUNDS_MAX):
            look = self._source.look(name, past_swaps=past_swaps)
            if look is None or name.topic == TRANSACTION_TOPIC or name == METADATA_PARTITION:
                return look
            noted = self._noted.get(name)
            if noted is not None and not noted.is_of(look):
                noted = None
            with suppress(FileNotFoundError):  # a segment was replaced or deleted meanwhile
                ended = before_undecided(self._source, name, look, noted.end if noted else 0, self._decided)
                if ended is not look and noted is not None and not noted.has_only_grown(look):
                    raise CompactedBehindEnd
                return ended
        raise KeepsChanging(f"cannot copy {name}: its segments change faster than they can be read. Try again later")

    def _add(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            log = self._log(name)
            if log is not None:
                self._manifest.logs.append(log)
            else:
                self._notes.append(f"{name} was deleted, or was still being created, while the backup was made")

    def _log(self, name: TopicPartition) -> StoredLog | None:
        """Copies the log to the store as it is now; None if it is gone, or not created yet."""
        is_stuck = False
        seen: list[Look] = []
        for number in range(ROUNDS_MAX):
            before = self._look(name, past_swaps=is_stuck)
            if before is None or not (before.topic_id or any(segment.size for segment in before.segments)):
                return None
            if before.is_being_swapped or (not before.is_contiguous and number < _PATIENT_ROUNDS):
                seen = [*(one for one in seen if one == before), before]
                is_stuck = before.is_being_swapped and len(seen) >= _STUCK_ROUNDS
                self._sleep(_PATIENCE_S)
                continue
            with LogCopy(self._source, self._store, self._copied, self._known, name, before) as copy:
                after = self._source.look(name, past_swaps=is_stuck)
                if after is None:
                    return None
                log = copy.finish(agree(before, after), after.start_offset)
            if log is not None:
                if copy.is_suspect:
                    self._suspects.append(log.name)
                return log
        raise KeepsChanging(
            f"cannot copy {name}: its segments are replaced faster than they can be copied. Try again later"
        )


def _format_of(source: Source) -> int:
    text = (read_whole(source.files, join(source.path, FORMAT_FILE)) or b"").strip()
    if not text.isdigit():
        raise NotADataDirectory(f"{source.path} has a {FORMAT_FILE} that says {text.decode(errors='replace')!r}")
    return int(text)


def _new_id(now_ms: int, taken: list[str]) -> str:
    """Returns an id made from the time, later than all that are taken even if the clock was set back."""
    name = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S") + f".{now_ms % 1000:03}Z"
    return name if not taken or name > taken[-1] else taken[-1] + "+"
