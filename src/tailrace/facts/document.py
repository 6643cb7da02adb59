"""JSON values that carry a version, so that an older reader refuses what it does not understand."""

from collections.abc import Mapping
from typing import Any


class UnreadableFact(Exception):
    """A record is not in a format that this release knows."""


def encode(version: int, fields: Mapping[str, Any]) -> bytes:
    import json  # imported late: a broker that starts has nothing to publish

    return json.dumps({"version": version, **fields}, separators=(",", ":"), ensure_ascii=False).encode()


def decode(value: bytes, version_max: int) -> dict[str, Any]:
    """Raises UnreadableFact."""
    import json

    try:
        fields: dict[str, Any] = json.loads(value)
        version = fields.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UnreadableFact(f"not a JSON object with a version: {error}") from None
    if not isinstance(version, int) or not 1 <= version <= version_max:
        raise UnreadableFact(f"version {version} is newer than this release reads, which is {version_max}")
    return fields
