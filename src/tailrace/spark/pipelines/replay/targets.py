"""Where a replay may write: not into its source, not into what the live run writes and keeps, and not over existing
data unless that is wanted. Checked before Spark is started.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.sinks import Sink
from tailrace.spark.pipelines.state.state import State
from tailrace.spark.source.options import BadOptions

if TYPE_CHECKING:
    from tailrace.spark.pipelines.pipeline import Pipeline

Place = tuple[str, str]  # as `Sink.place`

_ELSEWHERE = "://"  # in a path that is not of this machine's file system


def check_place(pipeline: "Pipeline", sink: Sink, state: State, *, overwrite: bool) -> None:
    """Raises BadOptions."""
    if sink.place is None:
        return
    kind, name = sink.place
    if kind == "topic" and pipeline.reads(name):
        raise BadOptions(f"the pipeline reads topic {name}: a replay into it would change what it replays")
    if kind == "topic" and overwrite:
        raise BadOptions("a topic cannot be overwritten: choose another one")
    for (taken_kind, taken), whose in _taken(pipeline, state):
        if kind == taken_kind and (name == taken or (kind == "files" and _overlap(Path(name), Path(taken)))):
            raise BadOptions(f"{taken} is {whose}: a replay goes into another place")
    if kind == "files" and not overwrite and _is_full(name):
        raise BadOptions(f"{name} has something in it: overwrite it, or choose another place")


def clear(sink: Sink) -> None:
    """Deletes the files of a place that was checked: a stream writes only where no other has written."""
    if sink.place is None or sink.place[0] != "files":
        return
    path = sink.place[1]
    if _ELSEWHERE in path:
        raise BadOptions(f"{path} cannot be deleted from here: choose another place")
    if Path(path).exists():
        shutil.rmtree(path)


def _taken(pipeline: "Pipeline", state: State) -> Iterator[tuple[Place, str]]:
    yield ("files", str(state.directory.resolve())), "where the pipeline keeps its state"
    for sink in (pipeline.sink, pipeline.decode.side):
        if sink is not None and sink.place is not None:
            yield sink.place, "where the live pipeline writes"
    for kind, name in (state.owner() or {}).get("sink", ()):
        yield (kind, name), "where the live pipeline has written"


def _overlap(one: Path, other: Path) -> bool:
    return one in other.parents or other in one.parents


def _is_full(path: str) -> bool:
    here = Path(path)
    return _ELSEWHERE not in path and here.exists() and (not here.is_dir() or any(here.iterdir()))
