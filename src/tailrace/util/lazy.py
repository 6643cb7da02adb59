"""A mapping with fixed keys, whose values are created on first use.

It defers imports: users and tests wait for a broker to start, and most of its APIs are not needed before that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LazyMapping(Mapping[Key, Value]):
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
