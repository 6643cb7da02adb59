"""Values that are made from the metadata, and kept until it changes."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tailrace.broker.metadata.state import Metadata

Value = TypeVar("Value")


class Cached(Generic[Value]):
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._revision = -1
        self._values: dict[Hashable, Value] = {}

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value for `key` as of now, made if it is not there."""
        if self._revision != self._metadata.revision:
            self._revision = self._metadata.revision
            self._values.clear()
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = make()
        return found
