"""The columns of Spark's own `kafka` format, as the Arrow types that Spark takes from a Python source: these exactly,
with no large, view or dictionary types. All may be null, as they may there.
"""

from collections.abc import Iterable

import pyarrow as pa

HEADERS = "headers"
HEADER_FIELDS = (pa.field("key", pa.string()), pa.field("value", pa.binary()))

TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.field("element", pa.struct(HEADER_FIELDS))),
}
COLUMNS = tuple(name for name in TYPES if name != HEADERS)


def schema_of(columns: Iterable[str] = COLUMNS) -> pa.Schema:
    """The columns, in the order asked for. Raises ValueError where there are none, one is not known or comes twice."""
    names = list(columns)
    if unknown := [name for name in names if name not in TYPES]:
        raise ValueError(f"no such columns: {', '.join(unknown)}; there are {', '.join(TYPES)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"each column once, and at least one: {', '.join(names) or 'none'}")
    return pa.schema([pa.field(name, TYPES[name]) for name in names])
