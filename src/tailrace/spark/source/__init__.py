"""Reading topics with Spark: from options to offsets, and from ranges of offsets to rows."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark.data_source import TailraceSource as TailraceSource


def __getattr__(name: str) -> Any:
    """`tailrace.spark.source.TailraceSource` is a documented name; the module it is in imports this package."""
    if name == "TailraceSource":
        from tailrace.spark.data_source import TailraceSource

        return TailraceSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
