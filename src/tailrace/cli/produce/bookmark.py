"""How far a file was sent, kept in a small file, so that `produce --resume` continues there.

One bookmark for each file, cluster and topic, in $XDG_STATE_HOME/tailrace/loads (~/.local/state/tailrace/loads). It
has the byte up to which all lines are acknowledged, and a digest of the file up to there: in a file that has changed,
continuing would skip lines that were never sent.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tailrace.cli.common.output import ExitCode, Failure

_SAMPLE_BYTES = 64 << 10


@dataclass(frozen=True)
class ResumePoint:
    """`position` bytes, which are `lines` lines, are acknowledged."""

    position: int
    lines: int


class Bookmark:
    def __init__(self, file: Path, *, cluster: str, topic: str, topic_id: str) -> None:
        self._file = file.resolve()
        self._identity = {"file": str(self._file), "cluster": cluster, "topic": topic}
        self._topic_id = topic_id
        name = hashlib.sha256(json.dumps(self._identity).encode()).hexdigest()[:32]
        self.path = _directory() / f"{name}.json"

    def read(self) -> ResumePoint | None:
        """Returns how far an earlier load got; None if none was interrupted. Raises Failure if it must not be
        continued.
        """
        try:
            found = json.loads(self.path.read_bytes())
            progress = ResumePoint(int(found["position"]), int(found["lines"]))
            seen, topic_id = found["seen"], found["topic_id"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise self._refusal("the note on how far it got cannot be read") from None
        if topic_id != self._topic_id:
            raise self._refusal(f"topic {self._identity['topic']} was made anew since")
        if self._file.stat().st_size < progress.position:
            raise self._refusal(f"{self._file} has become shorter since")
        if seen != self._seen(progress.position):
            raise self._refusal(f"{self._file} has changed since")
        return progress

    def write(self, progress: ResumePoint) -> None:
        """All or nothing, whatever happens meanwhile."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        seen = self._seen(progress.position)
        content = {**self._identity, "topic_id": self._topic_id, **asdict(progress), "seen": seen}
        aside = self.path.with_suffix(f".{os.getpid()}.tmp")
        with aside.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _seen(self, position: int) -> str:
        """The start of the file and what is right before `position`, in short."""
        with self._file.open("rb") as file:
            digest = hashlib.sha256(file.read(min(position, _SAMPLE_BYTES)))
            file.seek(max(0, position - _SAMPLE_BYTES))
            digest.update(file.read(min(position, _SAMPLE_BYTES)))
        return digest.hexdigest()

    def _refusal(self, why: str) -> Failure:
        message = f"cannot go on with the load: {why}\n  without --resume it starts again, at the first line"
        return Failure(message, ExitCode.REFUSED)


def _directory() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tailrace" / "loads"
