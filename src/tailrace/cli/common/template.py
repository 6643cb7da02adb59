"""`tail --format`: a small template, compiled once, for printing messages. Pure.

%t topic, %p partition, %o offset, %k key, %v value (or %s, as kcat has it), %T timestamp in milliseconds, %d its time,
%h headers as name=value with commas between, %K and %S the sizes of key and value in bytes (-1 for null), %% a per
cent sign; \\n \\t \\r \\0 \\\\ as usual. Keys and values come out byte by byte; null is nothing. Nothing is added.
"""

from collections.abc import Callable

from tailrace.cli.common import output
from tailrace.cli.common.messages import Row

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

Field = Callable[[Row], bytes]


class BadTemplate(ValueError):
    """It cannot be compiled; says why, in words."""


def compiled(template: str) -> Field:
    fields: list[Field | bytes] = []
    characters = iter(template)
    for character in characters:
        if character == "%":
            fields.append(_field(next(characters, "")))
        elif character == "\\":
            fields.append(unescaped("\\" + next(characters, "")))
        else:
            fields.append(character.encode("utf-8", "surrogateescape"))
    return lambda row: b"".join(field if isinstance(field, bytes) else field(row) for field in fields)


def unescaped(text: str) -> bytes:
    """Text in which \\n, \\t and the like stand for what cannot be typed."""
    pieces: list[bytes] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            pieces.append(character.encode("utf-8", "surrogateescape"))
            continue
        letter = next(characters, "")
        if letter not in _ESCAPES:
            raise BadTemplate(f"\\{letter} means nothing; known are \\n \\t \\r \\0 \\\\")
        pieces.append(_ESCAPES[letter])
    return b"".join(pieces)


def _field(letter: str) -> Field | bytes:
    if letter == "%":
        return b"%"
    if letter not in _FIELDS:
        raise BadTemplate(f"%{letter} means nothing; known are {' '.join(f'%{name}' for name in _FIELDS)} %%")
    return _FIELDS[letter]


def _headers(row: Row) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in row.headers)


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


_FIELDS: dict[str, Field] = {
    "t": lambda row: (row.topic or "").encode(),
    "p": lambda row: b"%d" % (row.partition or 0),
    "o": lambda row: b"%d" % (row.offset or 0),
    "k": lambda row: row.key or b"",
    "v": lambda row: row.value or b"",
    "s": lambda row: row.value or b"",
    "T": lambda row: b"%d" % (-1 if row.timestamp is None else row.timestamp),
    "d": lambda row: output.time(-1 if row.timestamp is None else row.timestamp).encode(),
    "h": _headers,
    "K": lambda row: _size(row.key),
    "S": lambda row: _size(row.value),
}
