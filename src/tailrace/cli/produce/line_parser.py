"""Parses a line of `tailrace produce` as a message, or says why it cannot."""

from collections.abc import Callable

from tailrace.cli.common import messages, template
from tailrace.cli.common.messages import BadMessage, Headers, Row
from tailrace.cli.common.output import ExitCode, Failure


class Parser:
    def __init__(
        self,
        *,
        as_json: bool = False,
        key: str | None = None,
        key_separator: str | None = None,
        headers: list[str] | None = None,
        partition: int | None = None,
        keep_partition: bool = False,
    ) -> None:
        if sum((as_json, key is not None, key_separator is not None)) > 1:
            raise Failure("only one of --json, --key and --key-separator can say what the key is", ExitCode.USAGE)
        if keep_partition and not as_json:
            raise Failure("--keep-partition goes with --json", ExitCode.USAGE)
        self.partition = partition
        self._keep_partition = keep_partition
        self._headers: Headers = tuple(map(_header, headers or []))
        self._key = None if key is None else key.encode("utf-8", "surrogateescape")
        self._separator = _separator(key_separator)
        self._parse: Callable[[bytes], Row] = self._json if as_json else self._plain

    def row(self, line: bytes) -> Row:
        return self._parse(line)

    def _plain(self, line: bytes) -> Row:
        if self._separator is None:
            return Row(self._key, line, self._headers, None, self.partition)
        key, separator, value = line.partition(self._separator)
        if not separator:
            raise BadMessage(f"it has no {self._separator.decode('utf-8', 'backslashreplace')!r} behind a key")
        return Row(key, value, self._headers, None, self.partition)

    def _json(self, line: bytes) -> Row:
        row = messages.from_json(line)
        partition = row.partition if self._keep_partition else self.partition
        if self._keep_partition and partition is None:
            raise BadMessage('it has no "partition" to keep')
        return row._replace(partition=partition, headers=row.headers + self._headers)


def _header(text: str) -> tuple[str, bytes | None]:
    name, separator, value = text.partition(":")
    if not separator or not name:
        raise Failure(f"-H takes NAME:VALUE, not {text!r}", ExitCode.USAGE)
    if not name.isprintable():
        raise Failure(f"-H: {name!r} is no name for a header", ExitCode.USAGE)
    return name, value.encode("utf-8", "surrogateescape")


def _separator(given: str | None) -> bytes | None:
    if given is None:
        return None
    try:
        separator = template.unescaped(given)
    except template.BadTemplate as error:
        raise Failure(f"--key-separator: {error}", ExitCode.USAGE) from None
    if not separator or b"\n" in separator:
        raise Failure("--key-separator takes at least one character, and no end of line", ExitCode.USAGE)
    return separator
