"""ListGroups (key 16): all groups.

Behaviour: every group that has members or offsets, and for some minutes groups that had. States and types are compared
without regard to case; unknown ones match nothing.

Versions 0-5.
    4   states, and a filter by state      5   types, and a filter by type
Not done: the type `streams`.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.protocol.codec import Encoded, encode_structure
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def list_groups(
    request: ListGroupsRequest, call: Call, broker: "Broker"
) -> ListGroupsResponse | DelayedResponse[ListGroupsResponse]:
    try:
        broker.groups.begin(call)
    except Refused as error:
        return ListGroupsResponse(error_code=error.code)
    return broker.groups.when_all_safe(IncrementalResponse(_list(request, call.version, broker), broker.start_job))


def _list(request: ListGroupsRequest, version: int, broker: "Broker") -> Generator[None, None, ListGroupsResponse]:
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    fragments = []
    for group in list(broker.groups.groups.values()):
        if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds):
            listed = ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            fragments.append(encode_structure(listed, ListGroupsResponse, version))
        yield
    return ListGroupsResponse(groups=Encoded(len(fragments), b"".join(fragments)))


API = Api(ApiKey.LIST_GROUPS, list_groups, elements_max=100)
