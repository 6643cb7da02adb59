"""DescribeClientQuotas (key 48): the quotas of users, clients and addresses.

Behaviour: the entities that match all components of the filter, by an exact name, as the default, or by any name; with
`strict` they have no other components. Without a filter, all entities. Quotas of an ip stand alone: a filter cannot
combine them with others.

Versions 0-1.
    1   flexible
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import Refused
from tailrace.broker.metadata.quota_changes import matcher
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def describe_client_quotas(
    request: DescribeClientQuotasRequest, call: Call, broker: "Broker"
) -> DescribeClientQuotasResponse:
    try:
        fits = matcher(request.components, strict=request.strict)
    except Refused as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in broker.metadata.quotas.values.items()
        if fits(entity)
    ]
    return DescribeClientQuotasResponse(entries=entries)


API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, describe_client_quotas, frame_bytes_max=1 << 20, elements_max=100)
