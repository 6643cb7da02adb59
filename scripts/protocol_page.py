"""Writes the pages of docs/ that are made from the code, so that they are never out of date.

    python scripts/protocol_page.py            writes docs/PROTOCOL.md and docs/CONFIGS.md
    python scripts/protocol_page.py --check    ends with 1 where one of them is not what would be written

PROTOCOL.md comes from the registry of APIs, the message classes, and what stands at the head of each module of
`broker/apis`; CONFIGS.md from the registry of configs. A head that says other versions than its message class fails.
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import NamedTuple

from tailrace.broker import apis
from tailrace.broker.apis.registry import APIS
from tailrace.broker.configs.group_tables import GROUP_KEYS
from tailrace.broker.configs.ignored import FAMILIES, Family
from tailrace.broker.configs.keys import ConfigKey
from tailrace.broker.configs.tables import BROKER_KEYS, TOPIC_KEYS
from tailrace.broker.core.api import Api
from tailrace.protocol.message import Versions, specification_of, versions_of
from tailrace.protocol.messages import REQUESTS, SPOKEN

DOCS = Path(__file__).parents[1] / "docs"
WIDTH = 116
PROTOCOL_INTRODUCTION = """
A client first requests this list (ApiVersions), and uses only these APIs and versions. A request for any other, or one
with invalid bytes for its version, closes the connection; only ApiVersions itself is answered in any version. *Flexible
from* is the first version with compact lengths and tagged fields. The modules are in `src/tailrace/broker/apis`, the
messages in `src/tailrace/protocol/messages`. [DEVIATIONS](DEVIATIONS.md) explains where a response differs from Kafka's
on purpose.
"""
LIMITS = """
Both are checked before the request is decoded. *Elements* are the entries of all arrays and the tagged fields of one
request. No request may be larger than `socket.request.max.bytes`. A request that exceeds a limit closes the connection.
"""
CONFIGS_INTRODUCTION = """
Names, types and defaults are Kafka's, unless [DEVIATIONS](DEVIATIONS.md) says otherwise; ours begin with `tailrace.`.
Unknown names and invalid values are refused. `tailrace topic show`, or any client's DescribeConfigs, shows the current
values, and where they come from.
"""
GROUP_CONFIGS = """
Those that begin with `consumer.` are of groups with `group.protocol=consumer`, the others of share groups. They are
changed with `tailrace group set`, at any time; the group need not exist yet. Where a group has no value of its own, the
broker's applies. `group.consumer.min.*` and `.max.*`, and `group.share.min.*` and `.max.*` of the broker limit both.
"""
TOPIC_CONFIGS = """
Set with `tailrace topic create --config`, changed with `tailrace topic alter --set` and `--unset`, at any time. Where a
topic has no value of its own, the broker's applies, under the broker's name: given at the start, or changed at run time
with IncrementalAlterConfigs, for this broker or for all.
"""
BROKER_CONFIGS = """
Given at the start: `tailrace serve --set key=value`, or the config file. Where the table says so they can be changed at
run time, too, with `tailrace config set`, `kafka-configs` or IncrementalAlterConfigs, for this broker or for all.
"""
IGNORED_CONFIGS = """
A config file that was written for Kafka stays usable: these are known, and have no effect. Configs that its author
relies on for security are refused instead. None of them can be set at run time. A name that is neither here nor above
is refused, and the message suggests the nearest one.
"""
MADE = "<!-- Made from the code by scripts/protocol_page.py: change the code, and run that. -->"


class Head(NamedTuple):
    """What the docstring of a module in `broker/apis` says, by its paragraphs."""

    name: str
    purpose: str
    behaviour: str
    versions: str
    notes: str  # of single versions
    not_done: str


_TITLE = re.compile(r"(?P<name>\w+) \(key (?P<key>\d+)\): (?P<purpose>.*)", re.DOTALL)
_VERSIONS = re.compile(r"Versions (?P<range>\d+(?:-\d+)?)(?P<more>.*?)\nNot done: (?P<not_done>.*)", re.DOTALL)


def head_of(module: ModuleType) -> Head:
    """Raises ValueError where the head is not as those of the other modules are."""
    paragraphs = (module.__doc__ or "").strip().split("\n\n")
    title, last = _TITLE.fullmatch(paragraphs[0]), _VERSIONS.fullmatch(paragraphs[-1])
    behaviour = one_line("\n\n".join(paragraphs[1:-1]))
    if title is None or last is None or not behaviour.startswith("Behaviour: "):
        raise ValueError(
            f"the head of {module.__name__} has no title, no behaviour, or no versions with what is not done"
        )
    if int(title["key"]) != module.API.key:
        raise ValueError(f"{module.__name__} says that its key is {title['key']}")
    return Head(
        title["name"],
        one_line(title["purpose"]),
        one_line(behaviour.removeprefix("Behaviour: ")),
        last["range"],
        last["more"].lstrip(".; "),
        one_line(last["not_done"]),
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


class Entry(NamedTuple):
    api: Api
    head: Head
    module: str
    served: Versions

    @property
    def advertised(self) -> Versions:
        return Versions(SPOKEN[self.api.key].advertised_from, self.served.last)


def entries() -> list[Entry]:
    """Every API that is in the registry, by its key. Raises ValueError where a module contradicts it."""
    found = []
    for info in iter_modules(apis.__path__):
        if not re.match(r"k\d\d_", info.name):
            continue
        module = import_module(f"{apis.__name__}.{info.name}")
        api: Api = module.API
        if APIS.get(api.key) is not api:
            raise ValueError(f"{info.name} is not in the registry")
        entry = Entry(api, head_of(module), info.name, versions_of(REQUESTS[api.key]))
        if entry.head.versions != shown(entry.served):
            raise ValueError(f"{info.name} says versions {entry.head.versions}, its message class {entry.served}")
        found.append(entry)
    return sorted(found, key=lambda entry: entry.api.key)


def shown(versions: Versions) -> str:
    return str(versions.first) if versions.first == versions.last else f"{versions.first}-{versions.last}"


def protocol_page() -> str:
    found = entries()
    lines = [
        "# Which of Kafka's protocol is spoken",
        "",
        MADE,
        "",
        *wrapped(f"{len(found)} APIs. {PROTOCOL_INTRODUCTION}"),
        "",
        *table(
            ("key", "API", "versions", "flexible from", "what it does", "not done", "module"),
            (protocol_row(entry) for entry in found),
        ),
        "",
        "## Limits of a request",
        *wrapped(LIMITS),
        "",
        *table(("API", "bytes", "elements"), (limits_row(entry) for entry in found)),
    ]
    for entry in found:
        lines += ["", f"## {entry.head.name} ({int(entry.api.key)})", *section(entry)]
    return "\n".join(lines) + "\n"


def protocol_row(entry: Entry) -> Sequence[str]:
    flexible = specification_of(REQUESTS[entry.api.key]).flexible
    is_flexible = flexible.first <= min(flexible.last, entry.served.last)
    advertised, served = shown(entry.advertised), shown(entry.served)
    return (
        str(int(entry.api.key)),
        f"[{entry.head.name}](#{entry.head.name.lower()}-{int(entry.api.key)})",
        advertised if advertised == served else f"{advertised} (served: {served})",
        str(max(flexible.first, entry.served.first)) if is_flexible else "–",
        entry.head.purpose.rstrip("."),
        "–" if entry.head.not_done == "nothing." else entry.head.not_done.rstrip("."),
        f"`{entry.module}`",
    )


def limits_row(entry: Entry) -> Sequence[str]:
    size = entry.api.frame_bytes_max
    shown_size = "`socket.request.max.bytes`" if size >= 1 << 31 else f"{size >> 10:,} KiB"
    return entry.head.name, shown_size, f"{entry.api.elements_max:,}"


def section(entry: Entry) -> Iterator[str]:
    behaviour = entry.head.behaviour
    yield from wrapped(behaviour[0].upper() + behaviour[1:])
    prose, notes = [], []
    for line in entry.head.notes.splitlines():
        # Notes on versions are indented, and stand two to a line, several spaces apart.
        for part in re.split(r"\s{4,}", line.strip()) if line.startswith("    ") else [line]:
            note = re.fullmatch(r"(\d+)\s+(.*)", part) if line.startswith("    ") else None
            if note is not None:
                notes.append(f"- version {note[1]}: {note[2]}")
            else:
                prose.append(part)
    if prose := [part for part in prose if part]:
        yield ""
        yield from wrapped("Versions " + one_line(" ".join(prose)))
    if notes:
        yield ""
        yield from notes


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(one_line(text), WIDTH, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def configs_page() -> str:
    of_others = {key.broker_key for key in (*TOPIC_KEYS.values(), *GROUP_KEYS.values())}
    brokers_alone = {name: key for name, key in BROKER_KEYS.items() if name not in of_others}
    return (
        "\n".join(
            [
                "# Configs",
                "",
                MADE,
                "",
                *wrapped(CONFIGS_INTRODUCTION),
                "",
                "## Of a topic",
                *wrapped(TOPIC_CONFIGS),
                "",
                *table(
                    ("topic config", "broker's name", "default", "takes", "what it does"),
                    (
                        (f"`{key.name}`", f"`{key.broker_key}`" if key.broker_key else "–", *described(key))
                        for key in TOPIC_KEYS.values()
                    ),
                ),
                "",
                "## Of a consumer group or share group",
                *wrapped(GROUP_CONFIGS),
                "",
                *table(
                    ("group config", "broker's name", "default", "takes", "what it does"),
                    (
                        (f"`{key.name}`", f"`{key.broker_key}`" if key.broker_key else "–", *described(key))
                        for key in GROUP_KEYS.values()
                    ),
                ),
                "",
                "## Of the broker alone",
                *wrapped(BROKER_CONFIGS),
                "",
                *table(
                    ("config", "at run time", "default", "takes", "what it does"),
                    (
                        (f"`{key.name}`", "yes" if key.is_dynamic else "–", *described(key))
                        for _, key in sorted(brokers_alone.items())
                    ),
                ),
                "",
                "## Kafka's, and without a meaning here",
                *wrapped(IGNORED_CONFIGS),
                "",
                *table(
                    ("configs", "at the start", "why"),
                    map(family_row, FAMILIES),
                ),
            ]
        )
        + "\n"
    )


def family_row(family: Family) -> Sequence[str]:
    patterns = " ".join(f"`{pattern}`" for pattern in family.patterns)
    return patterns, "refused" if family.is_refused else "taken, with a warning", family.reason


def described(key: ConfigKey) -> Sequence[str]:
    return f"`{key.default}`" if key.default else "empty", taken(key), key.doc


def taken(key: ConfigKey) -> str:
    kind = key.type.name.lower()
    if key.choices:
        return f"{kind}: {', '.join(f'`{choice}`' for choice in key.choices)}"
    if key.minimum is None:
        return kind
    return f"{kind} from {key.minimum:,}" + (f" to {key.maximum:,}" if key.maximum is not None else "")


PAGES: dict[str, Callable[[], str]] = {"PROTOCOL.md": protocol_page, "CONFIGS.md": configs_page}


def main(arguments: Sequence[str]) -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        print(f"not what the code says: {', '.join(stale)}; run scripts/protocol_page.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
