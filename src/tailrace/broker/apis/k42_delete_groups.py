"""DeleteGroups (key 42): groups are taken away, with all their offsets.

Behaviour: only where there are no members. The answer leaves when it is on disk.

Versions 0-2.
Not done: nothing.
"""

from typing import TYPE_CHECKING

from tailrace.broker.errors import Refused
from tailrace.broker.requests import Api, Call
from tailrace.broker.waiting import Later
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def delete_groups(
    request: DeleteGroupsRequest, call: Call, broker: "Broker"
) -> DeleteGroupsResponse | Later[DeleteGroupsResponse]:
    results = [
        DeletableGroupResult(group_id=group_id, error_code=_delete(group_id, call, broker))
        for group_id in request.groups_names
    ]
    return broker.groups.when_safe(DeleteGroupsResponse(results=results), *request.groups_names)


def _delete(group_id: str, call: Call, broker: "Broker") -> ErrorCode:
    try:
        broker.groups.begin(call)
        broker.groups.delete(group_id)
    except Refused as error:
        return error.code
    return ErrorCode.NONE


API = Api(ApiKey.DELETE_GROUPS, delete_groups, elements_max=1_000)
