"""Functions that generated readers and writers call: variable-length integers, tagged fields, length errors.

They are off the fast path: numbers of more than seven bits, tagged fields that are present, errors.
"""

from typing import Any, Protocol

from tailrace.protocol.errors import Malformed

Buffer = bytes | bytearray | memoryview

STRING_BYTES_MAX = 0x7FFF  # Kafka's limit, also for compact strings
TAGS_MAX = 1_000  # tagged fields of one structure; Kafka's messages define fewer than ten
VARINT_BYTES_MAX = 5
UINT32_MAX = 0xFFFFFFFF
OWN_PART_BYTES_MIN = 4_096  # records from this size on are not copied


class Slice(Protocol):
    """Bytes that lie elsewhere, for example in a range of a file. A message only needs their length."""

    @property
    def length(self) -> int: ...


class Encoded(list[Any]):
    """Encoded elements of an array: `count` of them in `data`.

    It is a list only to type checkers, so that it can replace one in a message: it has a length, but no elements.
    """

    __slots__ = ("data", "number")

    def __init__(self, count: int, data: bytes) -> None:
        super().__init__()
        self.number = count
        self.data = data

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Any:
        raise TypeError("encoded elements cannot be iterated")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and (self.number, self.data) == (other.number, other.data)

    def __ne__(self, other: object) -> bool:  # overrides that of list
        return not self == other

    def __repr__(self) -> str:
        return f"Encoded({self.number}, {self.data!r})"


def rest_of_varint(first: int, buffer: Buffer, position: int) -> tuple[int, int]:
    """Returns the number whose first byte, read already, announces more bytes; and the position behind it."""
    value = first & 0x7F
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UINT32_MAX:
                break
            return value, position
    raise Malformed("a variable-length number of more than 32 bits")


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    second = buffer[position + 1]
    if second < 0x80:  # most of the longer ones end here
        return first & 0x7F | second << 7, position + 2
    return rest_of_varint(first, buffer, position + 1)


def write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


VARINTS = tuple(bytes([value]) for value in range(0x80))  # numbers of one byte


def begin_tags(count: int, buffer: Buffer, position: int, budget: int) -> tuple[int, int, int]:
    """Returns the number of tagged fields, given its first byte; the position of the first one; and the budget that is
    left.
    """
    if count > 0x7F:
        count, position = rest_of_varint(count, buffer, position)
    if count > TAGS_MAX:
        raise Malformed(f"{count} tagged fields in one structure")
    if count > budget:
        raise over_budget()
    return count, position, budget - count


def begin_tag(previous: int, buffer: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """Returns the next tag, and the start and the end of its value."""
    tag, position = read_varint(buffer, position)
    if tag <= previous:
        raise Malformed(f"tag {tag} behind tag {previous}")
    size, position = read_varint(buffer, position)
    if size > end - position:
        raise out_of_bounds(size, end - position)
    return tag, position, position + size


def skip_tags(count: int, buffer: Buffer, position: int, end: int, budget: int) -> tuple[int, int]:
    """Skips the tagged fields of a structure that declares none. Returns the position behind them, and the budget that
    is left.
    """
    count, position, budget = begin_tags(count, buffer, position, budget)
    tag = -1
    for _ in range(count):
        tag, _, position = begin_tag(tag, buffer, position, end)
    return position, budget


def read_uuids(count: int, buffer: Buffer, position: int) -> list[bytes]:
    return [bytes(buffer[start : start + 16]) for start in range(position, position + 16 * count, 16)]


def out_of_bounds(size: int, left: int) -> Malformed:
    return Malformed(f"a length of {size}, but {left} bytes are left")


def too_many(count: int, left: int) -> Malformed:
    return Malformed(f"{count} elements, but {left} bytes are left")


def over_budget() -> Malformed:
    return Malformed("too many elements in one message")


def is_null() -> Malformed:
    return Malformed("null, which this version does not allow")


def wrong_tag_size(tag: int) -> Malformed:
    return Malformed(f"the value of tag {tag} does not have its declared size")


def wrong_marker(marker: int) -> Malformed:
    return Malformed(f"invalid marker {marker} before a nullable structure")


def lost(field: str, version: int) -> ValueError:
    return ValueError(f"{field} is set, but version {version} does not have it")


def string_too_long(size: int) -> ValueError:
    return ValueError(f"a string of {size} bytes, but at most {STRING_BYTES_MAX} are allowed")


def wrong_uuid() -> ValueError:
    return ValueError("a uuid must have 16 bytes")


def join_uuids(items: list[bytes]) -> bytes:
    """Joins the uuids. Raises ValueError unless each has 16 bytes."""
    if any(len(item) != 16 for item in items):
        raise wrong_uuid()
    return b"".join(items)
