"""Who has quotas: a user, a client id, both, or an address, each by its name or as the default of its type. Pure."""

from collections.abc import Mapping

from tailrace.cli.common.output import ExitCode, Failure

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_TYPES = (USER, CLIENT_ID, IP)

Entity = dict[str, str | None]
"""Names by type; None is the default of the type."""


def given(names: Mapping[str, str | None], defaults: Mapping[str, bool]) -> Entity:
    """Returns the entity that --user NAME, --user-defaults and the like name together. Raises Failure if they
    contradict each other.
    """
    entity: Entity = {kind: name for kind in _TYPES if (name := names[kind]) is not None}
    for kind in _TYPES:
        if defaults[kind] and kind in entity:
            raise Failure(f"give either --{kind} or --{_PLURAL_OPTIONS[kind]}", ExitCode.USAGE)
        if defaults[kind]:
            entity[kind] = None
    if any(name == "" for name in entity.values()):
        raise Failure(
            "a user, client id or ip has a name; --user-defaults and the like are for all others", ExitCode.USAGE
        )
    if IP in entity and len(entity) > 1:
        raise Failure("an ip has quotas of its own: give it without a user or a client id", ExitCode.USAGE)
    return entity


def named(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"{kind} {name}" if name is not None else f"default {kind}" for kind, name in _sorted(entity))


def rank(entity: Mapping[str, str | None]) -> list[tuple[int, bool, str]]:
    """By which entities are sorted: by type, names before defaults."""
    return [(_TYPES.index(kind), name is None, name or "") for kind, name in _sorted(entity)]


_PLURAL_OPTIONS = {USER: "user-defaults", CLIENT_ID: "client-defaults", IP: "ip-defaults"}


def _sorted(entity: Mapping[str, str | None]) -> list[tuple[str, str | None]]:
    return sorted(entity.items(), key=lambda part: _TYPES.index(part[0]) if part[0] in _TYPES else len(_TYPES))
