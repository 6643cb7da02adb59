"""Generates the function that decodes one version of a message: flat code, field by field.

Consecutive fields of a fixed size are read by one `unpack_from`, together with the first byte of the length behind
them. A structure inside an array is read in place, one level deeper. The generated code may raise `Malformed`; and for
missing bytes and invalid text also `struct.error`, `IndexError` and `UnicodeDecodeError`.

Every length is compared with the bytes that are left before it is used, since a Python slice silently ends with its
buffer. Every count is compared with the least number of bytes for its elements, and with the budget of elements.
"""

import struct
from collections.abc import Callable
from typing import Any

from tailrace.protocol import primitives
from tailrace.protocol.codegen import Source, struct_of
from tailrace.protocol.errors import Malformed
from tailrace.protocol.fields import FIXED_CODES, Field
from tailrace.protocol.message import default_text, has_field, may_be_null, specification_of, tagged_fields

# (buffer, position, end, budget of elements) -> (message, position behind it)
Reader = Callable[[primitives.Buffer, int, int, int], tuple[Any, int]]

_NAMES = {
    "Malformed": Malformed,
    "STRING_BYTES_MAX": primitives.STRING_BYTES_MAX,
    "begin_tag": primitives.begin_tag,
    "begin_tags": primitives.begin_tags,
    "is_null": primitives.is_null,
    "new": object.__new__,
    "out_of_bounds": primitives.out_of_bounds,
    "over_budget": primitives.over_budget,
    "read_uuids": primitives.read_uuids,
    "rest_of_varint": primitives.rest_of_varint,
    "skip_tags": primitives.skip_tags,
    "too_many": primitives.too_many,
    "unpack_from": struct.unpack_from,
    "wrong_marker": primitives.wrong_marker,
    "wrong_tag_size": primitives.wrong_tag_size,
}


def compile_reader(message: type[Any], version: int, flexible: bool) -> Reader:
    return _Reading(message, version, flexible).compile()


def minimal_size(kind: Field | type[Any], version: int, flexible: bool) -> int:
    """Returns the least number of bytes that an element of this kind takes."""
    if isinstance(kind, type):
        fields = [field for field in specification_of(kind).fields.values() if has_field(field, version)]
        plain = (minimal_size(field, version, flexible) for field in fields if field.tag is None)
        return max(1, sum(plain) + flexible)
    if kind.kind in FIXED_CODES:
        return struct_of(FIXED_CODES[kind.kind]).size
    if kind.kind == "nested":
        return 1 if may_be_null(kind, version) else minimal_size(kind.of, version, flexible)
    return 1 if flexible else (2 if kind.kind == "string" else 4)


def has_records(structure: type[Any]) -> bool:
    """Returns whether this structure, or one inside it, has records."""
    fields = specification_of(structure).fields.values()
    return any(field.kind == "records" or (isinstance(field.of, type) and has_records(field.of)) for field in fields)


class _Reading:
    """Generates the source of one reader. `value0` is the message, `value1` the current structure inside it,
    and so on.
    """

    def __init__(self, message: type[Any], version: int, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.source = Source(f"read {message.__name__} v{version}", _NAMES)
        self.fixed_fields: list[tuple[str, str]] = []  # pending fields of a fixed size: struct code and target
        self.tag_readers: list[tuple[str, type[Any]]] = []
        # A compact length is encoded plus one, and 0 is null.
        self.null, self.length = ("0", "size - 1") if flexible else ("-1", "size")

    def compile(self) -> Reader:
        with self.source.block("def read(buffer, position, end, budget):"):
            if has_records(self.message):
                self.source.line("view = memoryview(buffer)")
            self.structure(self.message, 0)
            self.source.line("return value0, position")
        for name, structure in self.tag_readers:  # the loop may add to the list
            self.tag_reader(name, structure)
        return self.source.function("read")

    def structure(self, structure: type[Any], depth: int) -> None:
        value = f"value{depth}"
        self.source.line(f"{value} = new({self.source.name(structure.__name__, structure)})")
        for name, field in specification_of(structure).fields.items():
            if field.tag is None and has_field(field, self.version):
                self.field(field, f"{value}.{name}", depth)
            else:
                self.source.line(f"{value}.{name} = {default_text(field, self.source)}")
        if self.flexible:
            self.tags(structure, value)
        self.flush()

    def field(self, field: Field, target: str, depth: int) -> None:
        if field.kind in FIXED_CODES:
            self.fixed_fields.append((FIXED_CODES[field.kind], target))
        elif field.kind == "array":
            self.measured(field, target, "i", lambda: self.array(field.of, target, depth))
        elif field.kind == "nested":
            self.nested(field, target, depth)
        else:
            code = "h" if field.kind == "string" else "i"
            self.measured(field, target, code, lambda: self.sized_bytes(field.kind, target))

    def flush(self) -> None:
        """Generates the read of all pending fields of a fixed size."""
        if not self.fixed_fields:
            return
        codes = "".join(code for code, _ in self.fixed_fields)
        targets = ", ".join(target for _, target in self.fixed_fields)
        if codes == "B":
            self.source.line(f"{targets} = buffer[position]")
        else:
            unpack = self.source.method("unpack", codes, struct_of(codes).unpack_from)
            self.source.line(f"{targets}{',' if len(self.fixed_fields) == 1 else ''} = {unpack}(buffer, position)")
        self.source.line(f"position += {struct_of(codes).size}")
        self.fixed_fields.clear()

    def measured(self, field: Field, target: str, code: str, read: Callable[[], None]) -> None:
        """Generates the read of a length into `size`, and then of its contents; handles null."""
        self.fixed_fields.append(("B" if self.flexible else code, "size"))
        self.flush()
        if self.flexible:
            with self.source.block("if size > 127:"):
                self.source.line("size, position = rest_of_varint(size, buffer, position)")
                if field.kind == "string":
                    with self.source.block("if size > STRING_BYTES_MAX + 1:"):
                        self.source.line("raise out_of_bounds(size - 1, STRING_BYTES_MAX)")
        nullable = may_be_null(field, self.version)
        with self.source.block(f"if size == {self.null}:"):
            self.source.line(f"{target} = None" if nullable else "raise is_null()")
        if nullable:
            with self.source.block("else:"):
                read()
        else:
            read()

    def sized_bytes(self, kind: str, target: str) -> None:
        """Generates the read of bytes or text whose length is in `size`."""
        self.source.line(f"stop = position + {self.length}")
        with self.source.block("if stop > end:" if self.flexible else "if stop > end or size < 0:"):
            self.source.line(f"raise out_of_bounds({self.length}, end - position)")
        if kind == "string":
            self.source.line(f'{target} = str(buffer[position:stop], "utf-8")')
        elif kind == "records":
            self.source.line(f"{target} = view[position:stop]")
        else:
            self.source.line(f"{target} = bytes(buffer[position:stop])")
        self.source.line("position = stop")

    def array(self, of: Field | type[Any], target: str, depth: int) -> None:
        least = minimal_size(of, self.version, self.flexible)
        self.source.line(f"count = {self.length}")
        left = "end - position" if least == 1 else f"(end - position) // {least}"
        with self.source.block(f"if count > {left}:" if self.flexible else f"if count > {left} or count < 0:"):
            self.source.line("raise too_many(count, end - position)")
        self.source.line("budget -= count")
        with self.source.block("if budget < 0:"):
            self.source.line("raise over_budget()")
        if isinstance(of, Field) and of.kind in FIXED_CODES:
            self.fixed_array(of.kind, target, least)
        else:
            self.elements(of, target, depth)

    def fixed_array(self, kind: str, target: str, size: int) -> None:
        if kind == "uuid":
            self.source.line(f"{target} = read_uuids(count, buffer, position)")
        else:
            self.source.line(f'{target} = list(unpack_from(f">{{count}}{FIXED_CODES[kind]}", buffer, position))')
        self.source.line(f"position += count * {size}" if size > 1 else "position += count")

    def elements(self, of: Field | type[Any], target: str, depth: int) -> None:
        items, element = f"items{depth}", f"value{depth + 1}"
        self.source.line(f"{items} = {target} = []")
        with self.source.block("for _ in range(count):"):
            if isinstance(of, Field):
                self.field(of, element, depth + 1)
            else:
                self.structure(of, depth + 1)
            self.source.line(f"{items}.append({element})")

    def nested(self, field: Field, target: str, depth: int) -> None:
        if not may_be_null(field, self.version):
            self.structure_into(field.of, target, depth)
            return
        self.fixed_fields.append(("b", "marker"))
        self.flush()
        with self.source.block("if marker == 1:"):
            self.structure_into(field.of, target, depth)
        with self.source.block("elif marker == -1:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line("raise wrong_marker(marker)")

    def structure_into(self, structure: type[Any], target: str, depth: int) -> None:
        self.flush()
        self.structure(structure, depth + 1)
        self.source.line(f"{target} = value{depth + 1}")

    def tags(self, structure: type[Any], value: str) -> None:
        """Generates the read of the number of tagged fields, which is nearly always 0; calls another function if there
        are some.
        """
        self.fixed_fields.append(("B", "tags"))
        self.flush()
        call = "skip_tags("
        if tagged_fields(structure, self.version):
            name = f"read_tags_{len(self.tag_readers)}"
            self.tag_readers.append((name, structure))
            call = f"{name}({value}, "
        with self.source.block("if tags:"):
            self.source.line(f"position, budget = {call}tags, buffer, position, end, budget)")

    def tag_reader(self, name: str, structure: type[Any]) -> None:
        with self.source.block(f"def {name}(value0, tags, buffer, position, end, budget):"):
            self.source.line("tags, position, budget = begin_tags(tags, buffer, position, budget)")
            self.source.line("tag = -1")
            with self.source.block("for _ in range(tags):"):
                self.source.line("tag, position, tag_end = begin_tag(tag, buffer, position, end)")
                for field_name, field in tagged_fields(structure, self.version):
                    with self.source.block(f"if tag == {field.tag}:"):
                        self.field(field, f"value0.{field_name}", 0)
                        self.flush()
                        with self.source.block("if position != tag_end:"):
                            self.source.line("raise wrong_tag_size(tag)")
                self.source.line("position = tag_end")
            self.source.line("return position, budget")
