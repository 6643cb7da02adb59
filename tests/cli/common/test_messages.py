"""Messages as JSON and by a template; lines, and what is made of them."""

import json
import os
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.common import messages, template
from tailrace.cli.common.messages import BadMessage, Row
from tailrace.cli.common.output import Failure
from tailrace.cli.produce.input_lines import Line, Lines
from tailrace.cli.produce.line_parser import Parser
from tailrace.cli.tail import printer

maybe_bytes = st.none() | st.binary() | st.text().map(str.encode)
texts = st.text(st.characters(exclude_categories=["Cs"]))
rows = st.builds(
    Row,
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(texts, maybe_bytes)).map(tuple),
    timestamp=st.integers(-1, (1 << 63) - 1),
    partition=st.integers(0, (1 << 31) - 1),
    topic=st.just("orders"),
    offset=st.integers(0, (1 << 63) - 1),
)


@given(rows)
def test_a_message_survives_json(row: Row) -> None:
    line = messages.to_json(row)
    assert "\n" not in line
    assert messages.from_json(line.encode()) == row._replace(topic=None, offset=None)


def test_json_has_text_as_text_and_other_bytes_in_base64() -> None:
    row = Row(b"\xff", "grüße".encode(), (("h", b"\xfe"), ("n", None)), 5, 0, "orders", 7)
    assert json.loads(messages.to_json(row)) == {
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "timestamp": 5,
        "key_base64": "/w==",
        "value": "grüße",
        "headers": [["h", {"base64": "/g=="}], ["n", None]],
    }


def test_a_value_is_enough_for_a_message() -> None:
    assert messages.from_json(b'{"value": "v"}') == Row(None, b"v")
    assert messages.from_json(b'{"value": null, "headers": {"a": "b"}}') == Row(None, None, (("a", b"b"),))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[1]", "no object"),
        (b"\xff", "not UTF-8"),
        (b"{}", 'no "value"'),
        (b'{"kye": "a", "value": "b"}', "'kye', which is unknown"),
        (b'{"value": 1}', "neither text nor null"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both"),
        (b'{"value_base64": "*"}', "not base64"),
        (b'{"value_base64": null}', "not base64"),
        (b'{"value": "\\ud800"}', "lone surrogate"),
        (b'{"value": "a", "timestamp": "now"}', "whole number"),
        (b'{"value": "a", "timestamp": true}', "whole number"),
        (b'{"value": "a", "partition": -1}', "whole number"),
        (b'{"value": "a", "headers": "x"}', "list of pairs"),
        (b'{"value": "a", "headers": [["x"]]}', "no pair"),
        (b'{"value": "a", "headers": [[1, "x"]]}', "not text"),
        (b'{"value": "a", "headers": [["x", {"b": 1}]]}', "neither text nor null"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_message_is_refused_in_words(line: bytes, why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        messages.from_json(line)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_any_json_is_a_message_or_is_refused(value: Any) -> None:
    for given_ in (value, {"value": value}, {"value": None, "headers": value}, {"value": None, "timestamp": value}):
        with suppress(BadMessage):
            messages.from_json(json.dumps(given_).encode())


ROW = Row(b"k\xff", b"value", (("a", b"1"), ("b", None)), 1_794_744_000_123, 3, "orders", 42)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (r"%t %p %o\n", b"orders 3 42\n"),
        (r"%k\t%v\0", b"k\xff\tvalue\0"),
        ("%s%%", b"value%"),
        ("%T %K %S", b"1794744000123 2 5"),
        ("%h", b"a=1,b="),
        ("grüße \\\\", "grüße \\".encode()),
    ],
)
def test_a_template_says_how_a_message_is_printed(said: str, meant: bytes) -> None:
    assert template.compiled(said)(ROW) == meant


def test_null_is_nothing_in_a_template_and_has_no_size() -> None:
    assert template.compiled("[%k][%v]%K %S")(Row(None, None)) == b"[][]-1 -1"


@pytest.mark.parametrize("said", ["%x", "%", "\\x", "a\\"])
def test_a_template_with_a_letter_nobody_knows_is_refused(said: str) -> None:
    with pytest.raises(template.BadTemplate, match="means nothing"):
        template.compiled(said)


def test_no_message_gives_commands_to_the_terminal() -> None:
    row = Row(b"\x1b]0;k\x07", b"\x1b[2Jvalue\r", (("\x1bh", b"\x1b"),), 0, 0, "orders", 1)
    shown = printer.columns(row, many_topics=True, dim=("", ""))
    assert b"\x1b" not in shown
    assert b"\r" not in shown
    assert b"orders 0:1" in shown


def read(content: bytes, *, position: int = 0, number: int = 0) -> list[Line]:
    ours, theirs = os.pipe()
    try:
        os.write(theirs, content)
        os.close(theirs)
        return [line for line in Lines(ours, position=position, number=number) if line is not None]
    finally:
        os.close(ours)


@given(st.binary(max_size=2000).map(lambda content: content.replace(b"\0", b"\n")))
def test_lines_are_what_is_between_ends_of_lines(content: bytes) -> None:
    lines = read(content)
    expected = content.split(b"\n")
    assert [line.content for line in lines] == (expected if expected[-1] else expected[:-1])
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert all(content[line.position :].startswith(line.content) for line in lines)
    assert [line.end for line in lines[:-1]] == [line.position for line in lines[1:]]
    assert not lines or lines[-1].end == len(content)


def test_lines_of_a_file_half_read_go_on_with_their_numbers() -> None:
    assert read(b"b\nc", position=2, number=1) == [Line(2, 2, 4, b"b"), Line(3, 4, 5, b"c")]


def test_a_pause_is_told_when_nothing_comes() -> None:
    ours, theirs = os.pipe()
    lines = iter(Lines(ours))
    assert next(lines) is None
    os.write(theirs, b"a\n")
    assert next(lines) == Line(1, 0, 2, b"a")
    os.close(theirs)
    assert list(lines) == []
    os.close(ours)


def test_a_line_with_a_key_is_split_at_the_first_separator() -> None:
    assert Parser(key_separator=r"\t").row(b"k\tv\tw") == Row(b"k", b"v\tw")
    with pytest.raises(BadMessage, match="behind a key"):
        Parser(key_separator=":").row(b"no key")


def test_headers_and_the_key_may_be_given_for_all_lines() -> None:
    parser = Parser(key="k", headers=["a:b:c", "d:"], partition=2)
    assert parser.row(b"v") == Row(b"k", b"v", (("a", b"b:c"), ("d", b"")), None, 2)


def test_the_partition_of_a_line_of_json_counts_only_if_it_is_to_be_kept() -> None:
    line = b'{"value": "v", "partition": 3}'
    assert Parser(as_json=True).row(line).partition is None
    assert Parser(as_json=True, keep_partition=True).row(line).partition == 3
    assert Parser(as_json=True, partition=1).row(line).partition == 1
    with pytest.raises(BadMessage, match="to keep"):
        Parser(as_json=True, keep_partition=True).row(b'{"value": "v"}')


@pytest.mark.parametrize(
    "options",
    [
        {"as_json": True, "key": "k"},
        {"key": "k", "key_separator": ":"},
        {"keep_partition": True},
        {"headers": ["no value"]},
        {"headers": [":no name"]},
        {"key_separator": ""},
        {"key_separator": "\\n"},
        {"key_separator": "\\q"},
    ],
)
def test_options_that_make_no_sense_together_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Failure) as failure:
        Parser(**options)
    assert failure.value.code == 2
