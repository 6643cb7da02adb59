"""Changes of configs and quotas (`--set KEY=VALUE`, `--unset KEY`); and where values come from, in words."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.cli.common import connection, units
from tailrace.cli.common.output import ExitCode, Failure

ONE_BROKER, ALL_BROKERS, DEFAULT = 2, 3, 5  # sources of values, in Kafka's numbers; the lowest one counts
GROUP = 8  # counts more than any broker's
_SOURCES = {
    1: "topic",
    ONE_BROKER: "broker, at run time",
    ALL_BROKERS: "all brokers, at run time",
    4: "broker's file",
    DEFAULT: "default",
    GROUP: "group",
}


class Change(NamedTuple):
    """Values as text; None where there is none."""

    name: str
    before: str | None
    after: str | None


def given(settings: list[str] | None, unset: list[str] | None) -> dict[str, str | None]:
    """Returns the configs to change, with values in the broker's units; None removes one. Raises Failure if there are
    none, or if a name is given twice.
    """
    changed = connection.pairs(settings, "--set")
    if not changed and not unset:
        raise Failure("nothing to change: give --set or --unset", ExitCode.USAGE)
    if twice := changed.keys() & set(unset or ()):
        raise Failure(f"{min(twice)} is both in --set and in --unset", ExitCode.USAGE)
    return {**units.converted(changed), **dict.fromkeys(unset or ())}


def show(whose: str, changes: Sequence[Change], *, dry_run: bool, as_json: bool) -> None:
    """Prints what was changed, or would be."""
    if as_json:
        rows = [change._asdict() for change in changes]
        print(json.dumps({"changed": whose, "dry_run": dry_run, "changes": rows}, indent=2, ensure_ascii=False))
        return
    print(f"{'would change' if dry_run else 'changed'} {whose}")
    for name, before, after in changes:
        print(f"  {name}: {'none' if before is None else before} → {'none' if after is None else after}")


def source(number: int) -> str:
    """Returns the name of a config source."""
    return _SOURCES.get(number, "unknown")
