"""Quotas of users, client ids and addresses: DescribeClientQuotas and AlterClientQuotas."""

from collections.abc import Mapping

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import refusal
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    OpData,
)
from tailrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)

Entity = Mapping[str, str | None]
"""Names by type (`user`, `client-id`, `ip`); None is the default of the type."""

Quotas = tuple[dict[str, str | None], dict[str, float]]
"""An entity, and its quotas."""

_EXACT, _DEFAULT = 0, 1  # how an entity is matched


def quotas(cluster: Cluster, entity: Entity, *, strict: bool = False) -> list[Quotas]:
    """The quotas of all entities that have all names of `entity`; with `strict`, of that entity alone."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    retry = cluster.retry("asking for quotas")
    while True:
        answer = cluster.ask_any(request, DescribeClientQuotasResponse, retry)
        if not answer.error_code:
            return [
                (
                    {part.entity_type: part.entity_name for part in entry.entity},
                    {one.key: one.value for one in entry.values},
                )
                for entry in answer.entries or ()
            ]
        retry.pause(refusal("quotas cannot be read", answer.error_code, answer.error_message))


def alter_quotas(
    cluster: Cluster, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Sets quotas of an entity; a value of None removes one. All of the changes are made, or none."""
    named = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    operations = [
        OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in changes.items()
    ]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=named, ops=operations)], validate_only=validate_only)
    retry = cluster.retry("changing quotas")
    while True:
        (result,) = cluster.ask_any(request, AlterClientQuotasResponse, retry).entries
        if not result.error_code:
            return
        retry.pause(refusal("quotas are not changed", result.error_code, result.error_message))
