"""Reads a config file, TOML or Java's properties by its suffix, and finds the line of each key for error messages."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

PROPERTIES_SUFFIX = ".properties"

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*([\s=:])")
_SEPARATOR = re.compile(r"\s*[=:]?\s*")
_TOML_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_TOML_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


class BadFile(Exception):
    """The file cannot be read, or is not in the format that its suffix names."""


class ConfigFile(NamedTuple):
    path: str
    tree: Mapping[str, object]  # TOML tables; for a properties file, one level of strings
    lines: Mapping[str, int]  # by full key

    @property
    def is_properties(self) -> bool:
        return self.path.endswith(PROPERTIES_SUFFIX)

    def values(self) -> dict[str, str]:
        """Every full key, with its value as text."""
        return dict(_flatten(self.tree))

    def place(self, key: str) -> str:
        """The file, and the line if it is known."""
        line = self.lines.get(key)
        return self.path if line is None else f"{self.path}, line {line}"


NO_FILE = ConfigFile("", {}, {})


def read_config_file(path: str) -> ConfigFile:
    """Raises BadFile."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}") from None
    return _properties(path, content) if path.endswith(PROPERTIES_SUFFIX) else _toml(path, content)


def _toml(path: str, content: bytes) -> ConfigFile:
    import tomllib  # imported late: most starts have no file

    try:
        text = content.decode()
        return ConfigFile(path, tomllib.loads(text), dict(_toml_lines(text)))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = f"; the name of a file in Kafka's format must end in {PROPERTIES_SUFFIX}"
        raise BadFile(f"{path} is not valid TOML: {error}{hint}") from None


def _toml_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yields the line of each key. Good enough for messages: a multi-line string that looks like TOML adds keys."""
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        if table := _TOML_TABLE.match(line):
            prefix = _plain(table[1]) + "."
        elif key := _TOML_KEY.match(line):
            yield prefix + _plain(key[1]), number


def _plain(key: str) -> str:
    """The key without quotes, and without spaces around its dots."""
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _properties(path: str, content: bytes) -> ConfigFile:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # the encoding of Java properties
    values: dict[str, object] = {}
    lines: dict[str, int] = {}
    for number, line in _logical_lines(text):
        end = _KEY_END.search(line)
        key = line if end is None else line[: end.start(1)]
        rest = line[len(key) :]
        name = _unescaped(key)
        values[name] = _unescaped(_SEPARATOR.sub("", rest, count=1)).strip()  # as in Java, the last value counts
        lines[name] = number
    return ConfigFile(path, values, lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields lines joined at trailing backslashes, with their first line numbers; no comments and empty lines."""
    begun, first = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        first = first if begun else number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun += line[:-1]
            continue
        yield first, begun + line
        begun = ""
    if begun:
        yield first, begun


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(plain, text)


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield prefix + key, str(value).lower()
        elif isinstance(value, list):
            yield prefix + key, ",".join(map(str, value))
        else:
            yield prefix + key, str(value)
