"""Decides changes of client quotas: checks them and returns metadata records; and matches entities to filters.

Nothing changes here. The caller appends the records, and their replay changes the state. The changes for one entity are
made all together, or not at all.
"""

import math
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.records import ClientQuotaChanged, MetadataRecord, QuotaEntityPart
from tailrace.broker.quotas.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotas,
    Entity,
)
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_client_quotas import OpData
from tailrace.protocol.messages.describe_client_quotas import ComponentData, EntityData

EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # how a filter matches a name

# The largest value of each quota; None if it need not be a whole number.
_OF_CLIENTS: dict[str, float | None] = {
    PRODUCER_BYTE_RATE: (1 << 63) - 1,
    CONSUMER_BYTE_RATE: (1 << 63) - 1,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_OF_ADDRESSES: dict[str, float | None] = {CONNECTION_CREATION_RATE: (1 << 31) - 1}


def entity_of(parts: Sequence[EntityData]) -> Entity:
    """Returns the entity that the components name. Raises Refused if it cannot have quotas."""
    names: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"unknown quota entity type {part.entity_type!r}: it must be user, client-id or ip")
        if part.entity_type in names:
            raise _invalid(f"{part.entity_type} appears twice")
        if part.entity_name == "":
            raise _invalid(f"{part.entity_type} has an empty name; null means the default")
        names[part.entity_type] = part.entity_name
    if not names:
        raise _invalid("the quota entity is empty")
    if IP in names and len(names) > 1:
        raise _invalid("ip cannot be combined with user or client-id")
    if (name := names.get(IP)) is not None:
        names[IP] = _address(name)
    return tuple(sorted(names.items()))


def _address(name: str) -> str:
    try:
        return str(ip_address(name))
    except ValueError:
        raise _invalid(f"{name!r} is not an IP address; host names are not resolved") from None


def alter_quotas(entity: Entity, changes: Sequence[OpData], quotas: ClientQuotas) -> list[MetadataRecord]:
    """Returns the records that change an entity's quotas. Raises Refused if one of the changes cannot be made."""
    known = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    own = quotas.values.get(entity, {})
    records: list[MetadataRecord] = []
    seen: set[str] = set()
    for change in changes:
        if change.key in seen:
            raise _invalid(f"{change.key} appears twice in the request")
        seen.add(change.key)
        if not change.remove:
            _check(change, known)
        if own.get(change.key) != (None if change.remove else change.value):
            parts = [QuotaEntityPart(kind=kind, name=name) for kind, name in entity]
            records.append(
                ClientQuotaChanged(entity=parts, key=change.key, value=change.value, is_removed=change.remove)
            )
    return records


def _check(change: OpData, known: dict[str, float | None]) -> None:
    if change.key not in known:
        raise _invalid(f"unknown quota {change.key!r}: it must be one of {', '.join(known)}")
    if not 0 < change.value < math.inf:
        raise _invalid(f"{change.key} must be a number greater than 0")
    largest = known[change.key]
    if largest is not None and (change.value != math.floor(change.value) or change.value > largest):
        raise _invalid(f"{change.key} must be a whole number, at most {largest}")


def matcher(components: Sequence[ComponentData], *, strict: bool) -> Callable[[Entity], bool]:
    """Returns a function that tells whether an entity matches all components; if `strict`, it may have no others.
    Raises Refused.
    """
    wanted: dict[str, tuple[bool, str | None]] = {}  # whether any name matches, and else which
    for component in components:
        kind = component.entity_type
        if kind in wanted:
            raise _invalid(f"{kind} appears twice")
        if kind not in (USER, CLIENT_ID, IP):
            code = ErrorCode.UNSUPPORTED_VERSION if kind else ErrorCode.INVALID_REQUEST
            raise Refused(code, f"unknown quota entity type {kind!r}: it must be user, client-id or ip")
        wanted[kind] = component.match_type == SPECIFIED, _wanted_name(component)
    if IP in wanted and len(wanted) > 1:
        raise _invalid("ip cannot be combined with user or client-id")

    def fits(entity: Entity) -> bool:
        names = dict(entity)
        return (not strict or len(names) == len(wanted)) and all(
            kind in names and (is_any or names[kind] == name) for kind, (is_any, name) in wanted.items()
        )

    return fits


def _wanted_name(component: ComponentData) -> str | None:
    """Returns the name to match; None stands for the default, or for any name."""
    if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
        raise _invalid(f"unknown match type {component.match_type}")
    if (component.match is None) == (component.match_type == EXACT):
        raise _invalid("an exact match needs a name, and other matches must not have one")
    if component.entity_type == IP and component.match is not None:
        try:
            return str(ip_address(component.match))
        except ValueError:
            return component.match  # matches no entity
    return component.match


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
