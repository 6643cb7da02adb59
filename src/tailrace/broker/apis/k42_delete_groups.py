"""DeleteGroups (key 42): deletes groups with all their offsets.

Behaviour: only groups without members. What a group had not read is noted in `__tailrace_losses`. The response is sent
when the deletion is on disk.

Versions 0-2.
Not done: nothing.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from tailrace.broker.backlog.ledger import Actor
from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

OFFSETS_A_STEP = 10


def delete_groups(
    request: DeleteGroupsRequest, call: Call, broker: "Broker"
) -> DeleteGroupsResponse | DelayedResponse[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    deleted = IncrementalResponse(_delete_all(names, call, broker), broker.start_job)
    return broker.ledger.when_noted(broker.groups.when_share_safe(deleted, *names))


def _delete_all(names: list[str], call: Call, broker: "Broker") -> Generator[None, None, DeleteGroupsResponse]:
    response = DeleteGroupsResponse()
    for group_id in names:
        steps = sum(map(len, broker.groups.offsets.of_group(group_id).values())) // OFFSETS_A_STEP
        code = _delete(group_id, call, broker)
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        for _ in range(1 + steps):
            yield
    return response


def _delete(group_id: str, call: Call, broker: "Broker") -> ErrorCode:
    try:
        broker.groups.begin(call)
        broker.groups.delete(group_id, Actor(call.client_id))
    except Refused as error:
        return error.code
    return ErrorCode.NONE


API = Api(ApiKey.DELETE_GROUPS, delete_groups, elements_max=1_000)
