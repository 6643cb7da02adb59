"""Functions that generated readers and writers call: variable-length integers, tagged fields, length errors.

These are the paths off the fast one: a number of more than seven bits, a tagged field that is there, a refusal.
"""

from typing import Any, Protocol

from tailrace.protocol.errors import Malformed

Buffer = bytes | bytearray | memoryview

STRING_BYTES_MAX = 0x7FFF  # Kafka's limit, in compact form too
TAGS_MAX = 1_000  # tagged fields of one structure; Kafka's messages define fewer than ten
VARINT_BYTES_MAX = 5
UINT32_MAX = 0xFFFFFFFF
OWN_PART_BYTES_MIN = 4_096  # records from this size on are handed on rather than copied


class Slice(Protocol):
    """Bytes that lie elsewhere, a range of a file perhaps: all that a message says of them is how many they are."""

    @property
    def length(self) -> int: ...


class Encoded(list[Any]):
    """Elements of an array that are encoded already: `count` of them in `data`.

    A list to type checkers only, so that it can stand for one in a message: it has a length, but no elements to see.
    """

    __slots__ = ("data", "number")

    def __init__(self, count: int, data: bytes) -> None:
        super().__init__()
        self.number = count
        self.data = data

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Any:
        raise TypeError("elements that are encoded cannot be iterated")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and (self.number, self.data) == (other.number, other.data)

    def __ne__(self, other: object) -> bool:  # a list has one of its own
        return not self == other

    def __repr__(self) -> str:
        return f"Encoded({self.number}, {self.data!r})"


def rest_of_varint(first: int, buffer: Buffer, position: int) -> tuple[int, int]:
    """The number whose first byte, read already, says that more follow; and where it ends."""
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
    if second < 0x80:  # as of most that are longer
        return first & 0x7F | second << 7, position + 2
    return rest_of_varint(first, buffer, position + 1)


def write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


VARINTS = tuple(bytes([value]) for value in range(0x80))  # those of one byte


def begin_tags(count: int, buffer: Buffer, position: int, budget: int) -> tuple[int, int, int]:
    """The number of tagged fields, given its first byte; where they begin; what they leave of the budget."""
    if count > 0x7F:
        count, position = rest_of_varint(count, buffer, position)
    if count > TAGS_MAX:
        raise Malformed(f"{count} tagged fields in one structure")
    if count > budget:
        raise over_budget()
    return count, position, budget - count


def begin_tag(previous: int, buffer: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """The next tag, where its value begins, and where that ends."""
    tag, position = read_varint(buffer, position)
    if tag <= previous:
        raise Malformed(f"tag {tag} behind tag {previous}")
    size, position = read_varint(buffer, position)
    if size > end - position:
        raise out_of_bounds(size, end - position)
    return tag, position, position + size


def skip_tags(count: int, buffer: Buffer, position: int, end: int, budget: int) -> tuple[int, int]:
    """Where the tagged fields of a structure that knows none end, and what they leave of the budget."""
    count, position, budget = begin_tags(count, buffer, position, budget)
    tag = -1
    for _ in range(count):
        tag, _, position = begin_tag(tag, buffer, position, end)
    return position, budget


def read_uuids(count: int, buffer: Buffer, position: int) -> list[bytes]:
    return [bytes(buffer[start : start + 16]) for start in range(position, position + 16 * count, 16)]


def out_of_bounds(size: int, left: int) -> Malformed:
    return Malformed(f"a length of {size} where {left} bytes are left")


def too_many(count: int, left: int) -> Malformed:
    return Malformed(f"{count} elements where {left} bytes are left")


def over_budget() -> Malformed:
    return Malformed("more elements than one message may have")


def is_null() -> Malformed:
    return Malformed("null where this version allows none")


def wrong_tag_size(tag: int) -> Malformed:
    return Malformed(f"the value of tag {tag} does not end where its size says")


def wrong_marker(marker: int) -> Malformed:
    return Malformed(f"marker {marker} before a structure that may be null")


def lost(field: str, version: int) -> ValueError:
    return ValueError(f"{field} is set, and version {version} cannot carry it")


def string_too_long(size: int) -> ValueError:
    return ValueError(f"a string of {size} bytes, where {STRING_BYTES_MAX} are the most")


def wrong_uuid() -> ValueError:
    return ValueError("a uuid that is not 16 bytes long")


def join_uuids(items: list[bytes]) -> bytes:
    """The uuids in a row. Raises ValueError unless each has 16 bytes."""
    if any(len(item) != 16 for item in items):
        raise wrong_uuid()
    return b"".join(items)
