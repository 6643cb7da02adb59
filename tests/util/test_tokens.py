"""Tokens in files: the first line, and what is too weak or broken to be one."""

from pathlib import Path

import pytest

from tailrace.util.tokens import BadToken, read_token


@pytest.mark.parametrize("text", ["0123456789abcdef", "0123456789abcdef\n", " 0123456789abcdef \r\nsecond line"])
def test_the_first_line_is_the_token(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text, newline="")
    assert read_token(str(tmp_path / "token")) == "0123456789abcdef"


@pytest.mark.parametrize(
    "text", ["", "\n0123456789abcdef", "0123456789abcde", "0123456 89abcdef", "é" * 20, "x" * 5000]
)
def test_a_weak_or_broken_token_is_refused_with_what_to_write(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text, encoding="utf-8")
    with pytest.raises(BadToken, match="openssl rand"):
        read_token(str(tmp_path / "token"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff" * 20)
    for name in ("missing", "bytes", "."):
        with pytest.raises(BadToken, match="cannot be read"):
            read_token(str(tmp_path / name))
