"""A mapping whose keys are known at once and whose values are made on first use.

For what is imported so: a broker is started by people and tests that wait for it, and has no use for most of its APIs
before it is there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Lazily(Mapping[Key, Value]):
    def __init__(self, keys: Iterable[Key], make: Callable[[Key], Value]) -> None:
        self.made: dict[Key, Value] = {}
        self._keys = dict.fromkeys(keys)
        self._make = make

    def __getitem__(self, key: Key) -> Value:
        made = self.made.get(key)
        if made is None:
            if key not in self._keys:
                raise KeyError(key)
            made = self.made[key] = self._make(key)
        return made

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
