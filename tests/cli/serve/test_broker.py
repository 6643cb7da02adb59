"""Plain options of `tailrace serve` are read without the library that reads all others, and mean the same."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tailrace.cli.app import app_of
from tailrace.cli.serve import command as serve
from tailrace.cli.serve.broker import plain_options

FLAGS = ("--insecure", "--no-monitor", "--check", "--json")
WITH_VALUES = ("--data", "--listen", "--advertise", "--config", "--set", "--metrics", "--http", "--http-token-file")
NAMES = (*WITH_VALUES, *FLAGS, "--help", "--dat", "-b")
VALUES = st.sampled_from(["a=b", "127.0.0.1:0", "[::1]:9092", "off", "./here", "", "-", "--data", "x y", "=", "-1"])


def by_typer(arguments: list[str], patch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    """None where it does not come to that."""
    found: list[dict[str, Any]] = []
    patch.setattr(serve, "run_broker", lambda **options: found.append(options))
    CliRunner().invoke(app_of(("serve", "topic")), ["serve", *arguments])
    return {name: value for name, value in found[0].items() if value not in (None, (), False)} if found else None


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.one_of(st.none(), VALUES)), max_size=5))
def test_what_is_read_the_short_way_is_what_the_long_way_reads(words: list[tuple[str, str | None]]) -> None:
    arguments = [word for pair in words for word in pair if word is not None]
    options = plain_options(arguments)
    with pytest.MonkeyPatch.context() as patch:
        if options is not None:
            assert options == by_typer(arguments, patch)


@pytest.mark.parametrize("option", WITH_VALUES)
def test_all_options_are_known(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once = plain_options([option, "here"])
    assert once is not None
    assert once == by_typer([option, "here"], monkeypatch)
    assert plain_options([f"{option}=here"]) is None


def test_every_option_of_the_long_way_is_read_the_short_way() -> None:
    renamed = {"assignments": "--set", "as_json": "--json"}
    flags = {renamed.get(name, f"--{name.replace('_', '-')}") for name in serve.serve.__annotations__} - {"--return"}
    assert flags < set(NAMES)
    assert all(plain_options([flag] if flag in FLAGS else [flag, "x"]) for flag in flags)


PROGRAM = """
import sys
from tailrace.cli.main import main
sys.argv = ["tailrace", "serve", "--set", "nothing"]
try:
    main()
finally:
    from tailrace.server import run  # as a start does that has read its settings
    print(*sys.modules)
"""

NOT_NEEDED = {
    *("typer", "tomllib", "dataclasses", "json", "datetime", "hashlib", "pathlib", "ipaddress", "difflib", "cramjam"),
    *(
        "tailrace.broker.groups.coordinator",
        "tailrace.broker.background.compaction",
        "tailrace.protocol.messages.join_group",
    ),
    *("starlette", "uvicorn", "tailrace.gateway"),
}


@pytest.mark.usefixtures("unmeasured_processes")
def test_a_start_does_not_wait_for_what_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30)
    assert "--set takes key=value" in done.stderr
    loaded = set(done.stdout.split())
    assert {"tailrace.server.node", "asyncio"} < loaded
    assert not NOT_NEEDED & loaded
