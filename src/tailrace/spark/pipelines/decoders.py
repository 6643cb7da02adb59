"""Decoders, from the bytes of messages to columns: Json, Text and Raw.

A decoded frame has the decoded columns, and those that come with every message: key, topic, partition, offset,
timestamp, and headers where they are read; then `_corrupt`, the bytes of a value that could not be decoded, if that is
what was asked for; and `_tombstone`, whether the value is null, which is no error. All of it is done by Spark's own
expressions: no row passes through Python.

What counts as corrupt is said with each decoder. What then happens is the argument `corrupt`:

    "column"   the row stays, its decoded columns are null, and `_corrupt` has its bytes (the default)
    "drop"     it is left out
    "fail"     the query stops, and the error says where the message is
    a sink     it goes there: value, key, topic, partition, offset, timestamp, and error, which says why

Corrupt messages and tombstones are counted in each batch: the progress of a query shows them, whatever is done to them.
"""

import re
import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.sinks import CORRUPT, Sink, Topic
from tailrace.spark.source.options import BadOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

READ = ("key", "value", "topic", "partition", "offset", "timestamp")  # the columns of the format that are needed
COMES_WITH = {
    "key": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
TOMBSTONE = "_tombstone"
CHOICES = ("column", "drop", "fail")
COUNTED = "tailrace"  # the name of the counts in a query's progress
MARK = "TAILRACE_CORRUPT_MESSAGE"  # in the text of the error, which is all that Spark passes on

_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_FIELDS, _ERROR = "_tailrace_fields", "_tailrace_error"


class Decoder(ABC):
    """`corrupt` is one of CHOICES, or a sink."""

    corrupt: str | Sink

    @property
    @abstractmethod
    def ddl(self) -> str:
        """The decoded columns."""

    @abstractmethod
    def _marked(self, messages: "DataFrame") -> "DataFrame":
        """The messages, with a struct of what they say, and why they are corrupt, where they are."""

    def _columns(self) -> "Column":
        """The decoded columns, of a frame that is marked."""
        from pyspark.sql import functions as F

        return F.col(f"{_FIELDS}.*")

    @property
    def side(self) -> Sink | None:
        """The sink for corrupt messages, if they have one."""
        return self.corrupt if isinstance(self.corrupt, Sink) else None

    @property
    def flags(self) -> tuple[str, ...]:
        return (CORRUPT, TOMBSTONE) if self.corrupt == "column" else (TOMBSTONE,)

    def decode(self, messages: "DataFrame", counted: "str | Observation" = COUNTED) -> "DataFrame":
        """The decoded frame of messages that the format gives. `counted` is where corrupt ones are counted."""
        from pyspark.sql import functions as F

        counts = F.count(_ERROR).alias("corrupt"), F.count_if(F.col("value").isNull()).alias("tombstones")
        # Counting is a step of its own in Spark's plan, and keeps filters behind it from decoding a second time.
        marked = self._kept(self._marked(messages).observe(counted, *counts))
        flags = {
            CORRUPT: F.when(F.col(_ERROR).isNotNull(), F.col("value")),
            TOMBSTONE: F.col("value").isNull(),
        }
        beside = [name for name in messages.columns if name in COMES_WITH]
        return marked.select(self._columns(), *beside, *(flags[name].alias(name) for name in self.flags))

    def corrupt_rows(self, messages: "DataFrame") -> "DataFrame":
        """The corrupt ones among the messages, as they go to a sink of their own. As messages of a topic, they have
        headers that say where they came from, and why.
        """
        from pyspark.sql import functions as F

        found = self._marked(messages).where(F.col(_ERROR).isNotNull()).withColumnRenamed(_ERROR, "error")
        if not isinstance(self.corrupt, Topic):
            return found.select("value", "key", "topic", "partition", "offset", "timestamp", "error")
        said = [
            F.struct(F.lit(name).alias("key"), F.col(name).cast("string").cast("binary").alias("value"))
            for name in ("topic", "partition", "offset", "error")
        ]
        return found.select("key", "value", F.array(*said).alias("headers"))

    def _kept(self, marked: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        is_right = F.col(_ERROR).isNull()
        if self.corrupt == "column":
            return marked
        if self.corrupt != "fail":
            return marked.where(is_right)
        place = F.concat_ws(" ", "topic", F.lit("partition"), "partition", F.lit("offset"), "offset")
        error = F.concat(F.lit(f"[{MARK}] "), place, F.lit(" is corrupt: "), F.col(_ERROR))
        return marked.where(F.when(is_right, True).otherwise(F.raise_error(error).cast("boolean")))


@dataclass(frozen=True, slots=True)
class Json(Decoder):
    """One JSON object in UTF-8, as RFC 8259 has it, with the fields of a DDL such as `id INT, amount DOUBLE`.

    Corrupt is anything else: blanks, bytes behind the object, two objects, another kind of value, `NaN`, single quotes,
    comments, bytes that are not UTF-8; and fields whose values are not of their type. A field that is missing is null,
    one that the DDL does not name is passed over, and of one that comes twice the last counts; a STRING takes the text
    of any value. Names are as they are written, in upper or lower case.

    `into` names one column that has the fields as a struct, which is needed where a field is named as a column that
    comes with every message.
    """

    fields: str
    corrupt: str | Sink = "column"
    into: str | None = None

    def __post_init__(self) -> None:
        _check_choice(self.corrupt)
        names = names_in(self.fields) if self.into is None else [self.into]
        if taken := [name for name in names if name.lower() in (*COMES_WITH, CORRUPT, TOMBSTONE)]:
            raise BadOptions(
                f"there is a column {taken[0]} already, which comes with every message; "
                'Json(…, into="order") puts the fields into one column: order.' + taken[0]
            )

    @property
    def ddl(self) -> str:
        return self.fields if self.into is None else f"`{self.into}` STRUCT<{self.fields}>"

    def _columns(self) -> "Column":
        from pyspark.sql import functions as F

        return F.col(f"{_FIELDS}.*") if self.into is None else F.col(_FIELDS).alias(self.into)

    def _marked(self, messages: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        text, bad = F.col("value").cast("string"), f"_{secrets.token_hex(8)}"
        parsed = F.from_json(text, f"{self.fields}, `{bad}` STRING", {**_STRICT, "columnNameOfCorruptRecord": bad})
        read = messages.select("*", parsed.alias("_parsed"))
        error = (
            F.when(F.col("value").isNull(), None)
            .when(~F.is_valid_utf8(text), "it is not UTF-8")
            .when(F.trim(text) == "", "it is blank")
            .when(~_is_one_object(text), "it is not one JSON object")
            .when(F.col("_parsed").isNull() | F.col("_parsed")[bad].isNotNull(), "its fields cannot be read")
        )
        marked = read.select(*messages.columns, "_parsed", error.alias(_ERROR))
        fields = F.when(F.col(_ERROR).isNull(), F.col("_parsed").dropFields(bad))
        return marked.select(*messages.columns, fields.alias(_FIELDS), _ERROR)


@dataclass(frozen=True, slots=True)
class Text(Decoder):
    """A column `value` of text. Corrupt is what is not UTF-8."""

    corrupt: str | Sink = "column"

    def __post_init__(self) -> None:
        _check_choice(self.corrupt)

    @property
    def ddl(self) -> str:
        return "value STRING"

    def _marked(self, messages: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        text = F.col("value").cast("string")
        is_text = F.is_valid_utf8(text)
        error = F.when(~is_text, "it is not UTF-8").alias(_ERROR)
        return messages.select("*", F.struct(F.when(is_text, text).alias("value")).alias(_FIELDS), error)


@dataclass(frozen=True, slots=True)
class Raw(Decoder):
    """A column `value` of the bytes as they are: nothing is corrupt."""

    corrupt = "drop"

    @property
    def ddl(self) -> str:
        return "value BINARY"

    def _marked(self, messages: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        fields = F.struct(F.col("value")).alias(_FIELDS)
        return messages.select("*", fields, F.lit(None).cast("string").alias(_ERROR))


def _is_one_object(text: "Column") -> "Column":
    """Whether an object is all there is. `from_json` stops behind the first, whatever follows.

    Where the only closing brace is the last character, that is so if it can be parsed at all. Else the text is read as
    the first of two elements of an array, of which the second is a mark that no message can know: both are found in
    their places if and only if the first is one object, and nothing else.
    """
    from pyspark.sql import functions as F

    mark = secrets.token_hex(8)
    enclosed = F.concat(F.lit("["), text, F.lit(f',{{"{mark}":true}}]'))
    elements = F.from_json(enclosed, f"ARRAY<STRUCT<`{mark}`: BOOLEAN>>", _STRICT)
    both = F.array(*(F.struct(F.lit(value).cast("boolean").alias(mark)) for value in (None, True)))
    is_flat = F.instr(text, "}") == F.length(text)
    return F.when(is_flat & F.startswith(text, F.lit("{")), True).otherwise(F.coalesce(elements == both, F.lit(False)))


def names_in(ddl: str) -> list[str]:
    """The names of the columns at the top of a DDL. Only Spark can tell whether it is one; it needs to run for that."""
    depth, parts = 0, [""]
    for piece in re.findall(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|.", ddl, re.DOTALL):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    found = [re.match(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`,]+))[\s:]+\S", part, re.DOTALL) for part in parts]
    if not all(found):
        raise BadOptions(f"the fields are a DDL such as 'id INT, amount DOUBLE', and not {ddl!r}")
    return [one[1].replace("``", "`") if one[1] else one[2] for one in found if one]


def _check_choice(corrupt: str | Sink) -> None:
    if not isinstance(corrupt, Sink) and corrupt not in CHOICES:
        raise BadOptions(f"corrupt is {', '.join(CHOICES)} or a sink, and not {corrupt!r}")
