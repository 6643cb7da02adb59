"""Request templates: what similar requests of one connection have in common, so that it is decoded once.

A template is found by the bytes between a request's correlation id and the first field that changes between requests:
an offset, the epoch of a session or the length of a batch. A connection has few templates, and they are small: a client
may send what it likes.
"""

import struct
from typing import Generic, Protocol, TypeVar

TEMPLATES_MAX = 64  # of one connection: about as many partitions as one client is at work with at a time
TEMPLATE_BYTES_MAX = 512  # names are shorter
STARTS_MAX = 4  # each is looked for
FORGOTTEN_AFTER = 16 * TEMPLATES_MAX  # requests of other templates

HEAD = struct.Struct(">ii")  # what stands before: key and version in one, correlation id


class RequestTemplate(Protocol):
    @property
    def start(self) -> int:
        """The position of the first field that changes."""


Template = TypeVar("Template", bound=RequestTemplate)


class RequestTemplates(Generic[Template]):
    """The templates of one connection and one API."""

    __slots__ = ("_by_bytes", "_not_learnt", "_starts")

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, Template] = {}
        self._starts: list[int] = []  # of all templates
        self._not_learnt = 0

    def __len__(self) -> int:
        return len(self._by_bytes)

    def find(self, frame: memoryview) -> Template | None:
        """The template of a request that begins like those before it."""
        for start in self._starts:
            template = self._by_bytes.get(frame[HEAD.size : start].tobytes())
            if template is not None:
                return template
        return None

    def has_room(self, start: int) -> bool:
        """Returns whether another template may be remembered. If there are too many, the first ones stay, since
        otherwise none would be found again; but not for ever.
        """
        if start > TEMPLATE_BYTES_MAX:
            return False
        if len(self._by_bytes) < TEMPLATES_MAX and (start in self._starts or len(self._starts) < STARTS_MAX):
            return True
        self._not_learnt += 1
        if self._not_learnt < FORGOTTEN_AFTER:
            return False
        self._not_learnt = 0
        self._by_bytes.clear()
        self._starts.clear()
        return True

    def remember(self, frame: memoryview, template: Template) -> None:
        self._by_bytes[frame[HEAD.size : template.start].tobytes()] = template
        if template.start not in self._starts:
            self._starts.append(template.start)
