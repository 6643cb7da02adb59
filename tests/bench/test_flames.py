"""The pictures show what was sampled, and nothing of the machine on which it was."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench.flames import LOADS, draw, frame_name, read

DOCS = Path(__file__).parents[2] / "docs"
OF_A_MACHINE = re.compile(r"/(work|root|home|usr|opt|tmp)\b|\.venv|site-packages|0x[0-9a-f]{6}")
MAIN = "main (/home/who/.venv/bin/tailrace:8);run (tailrace/cli/serve.py:9)"
STACKS = f"""\
{MAIN};Runner.run (asyncio/runners.py:8);uv_run (core.c:452);Log.append (tailrace/log/log.py:3) 500
{MAIN};Runner.run (asyncio/runners.py:9);send<T> (/root/x/src/tailrace/a.py) 496
{MAIN};Runner.run (asyncio/runners.py:9);0x7fcc990a3f16 (libc.so.6) 4
work (tailrace/server/threads.py:3);_queue_SimpleQueue_get (_queuemodule.c:1) 900
"""


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ("Log.append (tailrace/log/log.py:120)", "Log.append (tailrace/log/log.py)"),
        ("Log.append (/work/here/src/tailrace/log/log.py:120)", "Log.append (tailrace/log/log.py)"),
        ("run (/root/.venv/lib/python3.11/site-packages/uvloop/__init__.py:92)", "run (uvloop/__init__.py)"),
        ("run (/usr/lib/python3.11/asyncio/runners.py:118)", "run (asyncio/runners.py)"),
        ("main (/home/who/project/tool.py:1)", "main (tool.py)"),
        ("pwrite64 (libc.so.6)", "pwrite64 (libc.so.6)"),
        ("std::map<int, (a)>::at (/opt/x/map.h:3)", "std::map<int, (a)>::at (map.h)"),
        (
            "_RNvCs_3crc (/home/who/site-packages/fastcrc/fastcrc.cpython-311-x86_64-linux-gnu.so)",
            "Rust (fastcrc/fastcrc.so)",
        ),
        ("/home/who/program", "program"),
    ],
)
def test_a_frame_has_neither_its_line_nor_where_it_lies(found: str, shown: str) -> None:
    assert frame_name(found) == shown


def test_lines_of_a_function_are_one_frame_and_the_way_to_the_first_fork_is_left_out() -> None:
    root = read(STACKS)
    (loop,) = root.callees.values()
    assert (loop.name, loop.samples) == ("Runner.run (asyncio/runners.py)", 1000)
    assert {one.name: one.samples for one in loop.callees.values()} == {
        "Log.append (tailrace/log/log.py)": 500,
        "send<T> (tailrace/a.py)": 496,
    }


def test_a_thread_that_waits_for_work_and_what_is_too_small_are_left_out() -> None:
    small = f"{STACKS}{MAIN};seldom (x.c:1) 3\n"
    assert read(small).samples == 1003
    assert "seldom" not in draw(read(small), "title")


def test_a_picture_is_whole_and_has_no_path_of_a_machine() -> None:
    picture = draw(read(STACKS), "1 < 2 & 3")
    drawn = ElementTree.fromstring(picture)
    titles = [title.text for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[:2] == ["all: 100.0 %", "Runner.run (asyncio/runners.py): 100.0 %"]
    assert "send<T> (tailrace/a.py): 49.6 %" in titles
    assert not OF_A_MACHINE.search(picture)


@pytest.mark.parametrize("name", LOADS)
def test_the_pictures_of_the_documentation_are_small_linked_and_of_no_machine(name: str) -> None:
    picture = (DOCS / "flames" / f"{name}.svg").read_text()
    ElementTree.fromstring(picture)
    assert not OF_A_MACHINE.search(picture)
    assert len(picture.encode()) < 150_000
    assert f"flames/{name}.svg" in (DOCS / "PERFORMANCE.md").read_text()
