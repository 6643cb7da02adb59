"""Python source text while it is generated: lines, the objects that they name, and the resulting functions.

The text is registered with `linecache`, so that a traceback through compiled code shows its lines.
"""

import linecache
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any

_structs: dict[str, struct.Struct] = {}


def struct_of(codes: str) -> struct.Struct:
    """Returns the big-endian struct of these codes, always the same object."""
    found = _structs.get(codes)
    if found is None:
        found = _structs[codes] = struct.Struct(">" + codes)
    return found


class Source:
    """Source text under construction. Lines are added at the current indentation; `with source.block("if x:")` indents
    the lines added inside.
    """

    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.filename = f"<tailrace: {title}>"
        self.names = dict(names)
        self._lines: list[str] = []
        self._indentation = ""

    def line(self, text: str) -> None:
        self._lines.append(f"{self._indentation}{text}\n")

    def block(self, head: str) -> "Source":
        self.line(head)
        return self

    def __enter__(self) -> None:
        self._indentation += "    "

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._indentation = self._indentation[:-4]

    def name(self, wanted: str, value: Any) -> str:
        """Returns a name for `value` in the generated code: `wanted`, with a number if that is taken."""
        name, number = wanted, 2
        while self.names.setdefault(name, value) is not value:
            name, number = f"{wanted}_{number}", number + 1
        return name

    def method(self, verb: str, codes: str, bound: Callable[..., Any]) -> str:
        """Returns a name for a method of the struct of these codes. The codes make the name, as bound methods have no
        identity.
        """
        name = f"{verb}_{codes.replace('?', 'z')}"
        self.names[name] = bound
        return name

    def function(self, name: str) -> Callable[..., Any]:
        """Compiles the text, and returns its function of this name. Tracebacks can show the text from now on."""
        text = "".join(self._lines)
        code = compile(text, self.filename, "exec")
        exec(code, self.names)  # noqa: S102 - the text depends only on the message classes
        linecache.cache[self.filename] = (len(text), None, self._lines, self.filename)
        function: Callable[..., Any] = self.names[name]
        return function
