"""JSON values that carry a version, so that an older reader refuses what it does not understand.

Any client may write to some of the topics that have them. `require` refuses values that the code behind would stumble
over.
"""

from collections.abc import Callable, Mapping
from typing import Any

TIME_END = 253_402_300_800_000  # milliseconds since 1970: the year 10000, which cannot be shown as a date
NUMBER_END = 1 << 63

Check = Callable[[Any], bool]


class UnreadableFact(Exception):
    """A record is not in a format that this release knows."""


def encode(version: int, fields: Mapping[str, Any]) -> bytes:
    import json  # imported late: a broker that starts has nothing to publish

    return json.dumps({"version": version, **fields}, separators=(",", ":"), ensure_ascii=False).encode()


def decode(value: bytes, version_max: int) -> dict[str, Any]:
    """Raises UnreadableFact."""
    import json

    try:
        text = value.decode()
        fields: dict[str, Any] = json.loads(text)
        version = fields.pop("version")
        if "\\u" in text:
            encode(0, fields)  # an escaped surrogate without its other half is no text that can be written again
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise UnreadableFact(f"not a JSON object with a version: {error}") from None
    if not isinstance(version, int) or not 1 <= version <= version_max:
        raise UnreadableFact(f"version {version} is newer than this release reads, which is {version_max}")
    return fields


def require(fields: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """Raises UnreadableFact if a field is there, and does not pass the check of its name."""
    for name, check in checks.items():
        if name in fields and not check(fields[name]):
            raise UnreadableFact(f"{name} cannot be {fields[name]!r:.100}")


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_time(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < TIME_END


def is_number(value: object) -> bool:
    """Infinity is none, as JSON has no such number."""
    return isinstance(value, int | float) and -NUMBER_END < value < NUMBER_END


def optional(check: Check) -> Check:
    return lambda value: value is None or check(value)
