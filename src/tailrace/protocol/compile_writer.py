"""Generates the function that encodes one version of a message: flat code, field by field, into a list of parts.

Consecutive fields of a fixed size are packed at once, together with a one-byte length behind them, the usual case, and
with the zero for no tagged fields. Tagged fields are written in ascending order, and only if they differ from their
default.
"""

import struct
from collections.abc import Callable
from typing import Any

from tailrace.protocol import primitives
from tailrace.protocol.codegen import Source, struct_of
from tailrace.protocol.fields import FIXED_CODES, Empty, Field
from tailrace.protocol.message import has_field, may_be_null, specification_of, tagged_fields

# (message, parts, seams): appends to the parts; the seams are the indexes of parts that must not be copied
Writer = Callable[[Any, list[Any], list[int]], None]

_NAMES = {
    "BYTES_LIKE": frozenset((bytes, bytearray, memoryview)),
    "Encoded": primitives.Encoded,
    "OWN_PART_BYTES_MIN": primitives.OWN_PART_BYTES_MIN,
    "STRING_BYTES_MAX": primitives.STRING_BYTES_MAX,
    "VARINTS": primitives.VARINTS,
    "join_uuids": primitives.join_uuids,
    "lost": primitives.lost,
    "pack": struct.pack,
    "string_too_long": primitives.string_too_long,
    "write_varint": primitives.write_varint,
    "wrong_uuid": primitives.wrong_uuid,
}


def compile_writer(structure: type[Any], version: int, flexible: bool) -> Writer:
    return _Writing(structure, version, flexible).compile()


class _Writing:
    """Generates the source of one writer. `value0` is the message, `value1` the current structure inside it,
    and so on.
    """

    def __init__(self, message: type[Any], version: int, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.source = Source(f"write {message.__name__} v{version}", _NAMES)
        self.fixed_fields: list[tuple[str, str]] = []  # pending, of a fixed size: struct code and value ("" for x)
        self.tag_writers: list[tuple[str, type[Any]]] = []

    def compile(self) -> Writer:
        with self.source.block("def write(value0, parts, seams):"):
            self.source.line("append = parts.append")
            self.structure(self.message, 0)
        for name, structure in self.tag_writers:  # the loop may add to the list
            self.tag_writer(name, structure)
        return self.source.function("write")

    def structure(self, structure: type[Any], depth: int) -> None:
        value = f"value{depth}"
        for name, field in specification_of(structure).fields.items():
            if not has_field(field, self.version):
                self.refuse_to_lose(f"{structure.__name__}.{name}", field, f"{value}.{name}")
            elif field.tag is None:
                self.field(field, f"{value}.{name}", depth)
        if self.flexible:
            self.tags(structure, value)
        self.flush()

    def differs(self, field: Field, value: str) -> str:
        """Returns an expression that is true if the value is not the field's default."""
        if field.default is Empty:
            return value
        if field.kind == "nested" and field.default is None and field.tag is not None:
            return f"({value} is not None and {value} != {self.source.name(field.of.__name__, field.of)}())"
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {field.default!r}"

    def refuse_to_lose(self, name: str, field: Field, value: str) -> None:
        if not field.ignorable:
            with self.source.block(f"if {self.differs(field, value)}:"):
                self.source.line(f"raise lost({name!r}, {self.version})")

    def field(self, field: Field, value: str, depth: int) -> None:
        if field.kind == "uuid":
            self.uuid(value)
        elif field.kind in FIXED_CODES:
            self.fixed_fields.append((FIXED_CODES[field.kind], value))
        elif field.kind == "array":
            self.array(field, value, depth)
        elif field.kind == "nested":
            self.nested(field, value, depth)
        elif field.kind == "records":
            self.records(field, value)
        else:
            self.sized_bytes(field, value)

    def uuid(self, value: str) -> None:
        with self.source.block(f"if len({value}) != 16:"):  # `pack` would truncate or pad it silently
            self.source.line("raise wrong_uuid()")
        self.fixed_fields.append((FIXED_CODES["uuid"], value))

    def flush(self) -> None:
        """Generates the packing of all pending fields of a fixed size."""
        self.pack(self.fixed_fields)
        self.fixed_fields = []

    def pack(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        codes = "".join(code for code, _ in run)
        values = ", ".join(value for _, value in run if value)
        if not values:
            self.source.line(f"append({bytes(len(codes))!r})")
        elif codes == "B":
            self.source.line(f"append(VARINTS[{values}])")
        else:
            pack = self.source.method("pack", codes, struct_of(codes).pack)
            self.source.line(f"append({pack}({values}))")

    def size(self, code: str) -> None:
        """Generates the encoding of the length in `size`; a compact length is encoded plus one."""
        if not self.flexible:
            self.fixed_fields.append((code, "size"))
            self.flush()
            return
        with self.source.block("if size < 128:"):
            self.pack([*self.fixed_fields, ("B", "size")])
        with self.source.block("else:"):
            if code == "h":
                with self.source.block("if size > STRING_BYTES_MAX + 1:"):
                    self.source.line("raise string_too_long(size - 1)")
            self.flush()
            self.source.line("append(write_varint(size))")

    def measure(self, field: Field, name: str, measured: str, convert: str = "") -> None:
        """Sets `size` to the encoded length of the variable `name`, after the conversion `convert`."""
        size = f"size = {measured} + 1" if self.flexible else f"size = {measured}"
        if not may_be_null(field, self.version):
            if convert:
                self.source.line(convert)
            self.source.line(size)
            return
        with self.source.block(f"if {name} is None:"):
            self.source.line(f"size = {0 if self.flexible else -1}")
        with self.source.block("else:"):
            if convert:
                self.source.line(convert)
            self.source.line(size)

    def sized_bytes(self, field: Field, value: str) -> None:
        """Generates the encoding of a string or a byte string."""
        self.source.line(f"data = {value}")
        self.measure(field, "data", "len(data)", "data = data.encode()" if field.kind == "string" else "")
        self.size("h" if field.kind == "string" else "i")
        with self.source.block("if data:"):
            self.source.line("append(data)")

    def records(self, field: Field, value: str) -> None:
        """Generates the encoding of records: large ones, and those that are not in memory, become parts of
        their own.
        """
        self.source.line(f"data = {value}")
        self.measure(field, "data", "(len(data) if data.__class__ in BYTES_LIKE else data.length)")
        self.size("i")
        with self.source.block(f"if size > {int(self.flexible)}:"):
            with self.source.block("if size > OWN_PART_BYTES_MIN or data.__class__ not in BYTES_LIKE:"):
                self.source.line("seams.append(len(parts))")
            self.source.line("append(data)")

    def array(self, field: Field, value: str, depth: int) -> None:
        self.source.line(f"items = {value}")
        self.measure(field, "items", "len(items)")
        self.size("i")
        with self.source.block("if items:"):
            with self.source.block("if items.__class__ is Encoded:"):
                self.source.line("append(items.data)")
            with self.source.block("else:"):
                self.elements(field.of, depth)

    def elements(self, of: Field | type[Any], depth: int) -> None:
        if isinstance(of, type):
            with self.source.block(f"for value{depth + 1} in items:"):
                self.structure(of, depth + 1)
        elif of.kind == "uuid":
            self.source.line("append(join_uuids(items))")
        elif of.kind in FIXED_CODES:
            self.source.line(f'append(pack(f">{{len(items)}}{FIXED_CODES[of.kind]}", *items))')
        else:
            with self.source.block(f"for value{depth + 1} in items:"):
                self.field(of, f"value{depth + 1}", depth + 1)
                self.flush()

    def nested(self, field: Field, value: str, depth: int) -> None:
        inner = f"value{depth + 1}"
        self.source.line(f"{inner} = {value}")
        if not may_be_null(field, self.version):
            self.flush()
            self.structure(field.of, depth + 1)
            return
        with self.source.block(f"if {inner} is None:"):
            self.pack([*self.fixed_fields, ("b", "-1")])
        with self.source.block("else:"):
            self.fixed_fields.append(("b", "1"))
            self.structure(field.of, depth + 1)

    def tags(self, structure: type[Any], value: str) -> None:
        """Generates the encoding of no tagged fields, or a call of another function if there are some."""
        empty = [*self.fixed_fields, ("x", "")]
        tagged = tagged_fields(structure, self.version)
        if not tagged:
            self.fixed_fields = empty
            return
        name = f"write_tags_{len(self.tag_writers)}"
        self.tag_writers.append((name, structure))
        differ = " or ".join(self.differs(field, f"{value}.{field_name}") for field_name, field in tagged)
        with self.source.block(f"if {differ}:"):
            self.flush()
            self.source.line(f"append({name}({value}))")
        with self.source.block("else:"):
            self.pack(empty)

    def tag_writer(self, name: str, structure: type[Any]) -> None:
        """Generates a function that returns the encoded tagged fields of a structure."""
        with self.source.block(f"def {name}(value0):"):
            self.source.line("count, out, seams = 0, [], []")
            for field_name, field in tagged_fields(structure, self.version):
                value = f"value0.{field_name}"
                with self.source.block(f"if {self.differs(field, value)}:"):
                    self.source.line("parts = []")
                    self.source.line("append = parts.append")
                    self.field(field, value, 0)
                    self.flush()
                    self.source.line('data = b"".join(parts)')
                    self.source.line(
                        f"out += ({primitives.write_varint(field.tag or 0)!r}, write_varint(len(data)), data)"
                    )
                    self.source.line("count += 1")
            self.source.line('return write_varint(count) + b"".join(out)')
