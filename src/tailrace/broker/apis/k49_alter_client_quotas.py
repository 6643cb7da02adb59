"""AlterClientQuotas (key 49): sets and deletes the quotas of users, clients and addresses.

Behaviour: an entity gets all of its changes or none, and may be listed only once. It is a user, a client-id, both, or
an ip, each by its name or as the default (null) of its kind. Changes apply from the response on, also to open
connections. `validate_only` reports what would be refused. `producer_byte_rate`, `consumer_byte_rate` and
`request_percentage` are enforced by throttling (see OPERATING), `controller_mutation_rate` by refusing requests for a
while, and `connection_creation_rate` by closing excess connections. As there is no authentication yet, every user is
ANONYMOUS.

Versions 0-1.
    1   flexible
Not done: host names for an ip: only addresses are accepted.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.quota_changes import alter_quotas, entity_of
from tailrace.broker.metadata.records import MetadataRecord
from tailrace.broker.quotas.client_quotas import Entity
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def alter_client_quotas(request: AlterClientQuotasRequest, call: Call, broker: "Broker") -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse()
    changes: list[MetadataRecord] = []
    seen: set[Entity] = set()
    for entry in request.entries:
        result = EntryResult(entity=entry.entity)
        response.entries.append(result)
        try:
            entity = entity_of(entry.entity)
            if entity in seen:
                raise Refused(ErrorCode.INVALID_REQUEST, "the entity appears twice in the request")
            seen.add(entity)
            changes += alter_quotas(entity, entry.ops, broker.metadata.quotas)
        except Refused as error:
            result.error_code, result.error_message = error.code, error.message
    if changes and not request.validate_only:
        broker.metadata_log.write_or_refuse(changes, response.entries, call.now_ms)
    return response


API = Api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    alter_client_quotas,
    frame_bytes_max=1 << 20,
    elements_max=10_000,
)
