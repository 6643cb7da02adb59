"""Where a replay may write: not into what it reads, nor into what live writes and keeps, nor over what is there unless
that is wanted. Checked before Spark is started; what is to be overwritten by a stream is deleted then.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.spark.options import BadOptions
from tailrace.spark.pipelines.sinks import Files, Sink, Topic
from tailrace.spark.pipelines.state import State

if TYPE_CHECKING:
    from tailrace.spark.pipelines.pipeline import Pipeline

_HERE = "file:"


def check_place(pipeline: "Pipeline", sink: Sink, state: State, *, overwrite: bool) -> None:
    """Raises BadOptions."""
    if isinstance(sink, Topic):
        _check_topic(pipeline, sink, overwrite)
    elif isinstance(sink, Files):
        _check_files(pipeline, sink, state, overwrite)


def clear(sink: Sink) -> None:
    """Deletes the files of a place that was checked: a stream writes only where no other has written."""
    if not isinstance(sink, Files):
        return
    path = _path(sink)
    if path is None:
        raise BadOptions(f"{sink.path} cannot be deleted from here: choose another place")
    if path.exists():
        shutil.rmtree(path)


def _check_topic(pipeline: "Pipeline", sink: Topic, overwrite: bool) -> None:
    if sink.name in pipeline.source:
        raise BadOptions(f"the pipeline reads topic {sink.name}: a replay into it would change what it replays")
    if any(isinstance(one, Topic) and one.name == sink.name for one in _live_sinks(pipeline)):
        raise BadOptions(f"the live pipeline writes to topic {sink.name}: a replay goes into another place")
    if overwrite:
        raise BadOptions("a topic cannot be overwritten: choose another one")


def _check_files(pipeline: "Pipeline", sink: Files, state: State, overwrite: bool) -> None:
    path = _path(sink)
    if path is None:
        if any(isinstance(one, Files) and one.path == sink.path for one in _live_sinks(pipeline)):
            raise BadOptions(f"the live pipeline writes to {sink.path}: a replay goes into another place")
        return
    for taken, whose in _taken(pipeline, state):
        if path == taken or path in taken.parents or taken in path.parents:
            raise BadOptions(f"{taken} is {whose}: a replay goes into another place, and {sink.path} is not one")
    if not overwrite and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadOptions(f"{sink.path} has something in it: overwrite it, or choose another place")


def _taken(pipeline: "Pipeline", state: State) -> Iterator[tuple[Path, str]]:
    yield state.directory.resolve(), "where the pipeline keeps its state"
    for sink in _live_sinks(pipeline):
        if isinstance(sink, Files) and (path := _path(sink)) is not None:
            yield path, "where the live pipeline writes"


def _live_sinks(pipeline: "Pipeline") -> Iterator[Sink]:
    yield pipeline.sink
    if pipeline.decode.side is not None:
        yield pipeline.decode.side


def _path(sink: Files) -> Path | None:
    """On this machine's own file system, or None."""
    if sink.path.startswith(_HERE):
        return Path("/" + sink.path.removeprefix(_HERE).lstrip("/")).resolve()
    return None if "://" in sink.path else Path(sink.path).resolve()
