"""Forms: what requests that look alike have in common, remembered so that it is decoded once.

A form is known by the bytes between a request's correlation id and the first thing that changes from one to the next,
an offset, the epoch of a session or the length of a batch. A connection has few of them, and they are small: a client
may send what it likes.
"""

import struct
from typing import Generic, Protocol, TypeVar

FORMS_MAX = 64  # of one connection: about as many partitions as one client is at work with at a time
FORM_BYTES_MAX = 512  # names are shorter
STARTS_MAX = 4  # each is looked for
FORGOTTEN_AFTER = 16 * FORMS_MAX  # requests of other forms

HEAD = struct.Struct(">ii")  # what stands before: key and version in one, correlation id


class AnyForm(Protocol):
    @property
    def start(self) -> int:
        """Where in a request that stands which changes."""


Form = TypeVar("Form", bound=AnyForm)


class Forms(Generic[Form]):
    """Those of one connection, of one API."""

    __slots__ = ("_by_bytes", "_not_learnt", "_starts")

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, Form] = {}
        self._starts: list[int] = []  # of all forms
        self._not_learnt = 0

    def __len__(self) -> int:
        return len(self._by_bytes)

    def find(self, frame: memoryview) -> Form | None:
        """The form of a request that begins like those before it."""
        for start in self._starts:
            form = self._by_bytes.get(frame[HEAD.size : start].tobytes())
            if form is not None:
                return form
        return None

    def has_room(self, start: int) -> bool:
        """Where there are too many forms the first ones stay, or none would be found again; but not for ever."""
        if start > FORM_BYTES_MAX:
            return False
        if len(self._by_bytes) < FORMS_MAX and (start in self._starts or len(self._starts) < STARTS_MAX):
            return True
        self._not_learnt += 1
        if self._not_learnt < FORGOTTEN_AFTER:
            return False
        self._not_learnt = 0
        self._by_bytes.clear()
        self._starts.clear()
        return True

    def remember(self, frame: memoryview, form: Form) -> None:
        self._by_bytes[frame[HEAD.size : form.start].tobytes()] = form
        if form.start not in self._starts:
            self._starts.append(form.start)
