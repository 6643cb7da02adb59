"""What a pipeline keeps on disk.

state             the state directory: checkpoint, losses, history, lock
history           the finished batches, kept beyond the hundred that Spark remembers
checkpoint_files  finds damage in the small files of Spark's checkpoint
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark.pipelines.state.state import State as State


def __getattr__(name: str) -> Any:
    """`tailrace.spark.pipelines.state.State` is a documented name."""
    if name == "State":
        from tailrace.spark.pipelines.state.state import State

        return State
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
