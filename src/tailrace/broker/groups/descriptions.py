"""Responses that describe groups: any number of groups, of any number of members, so some members at a time."""

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from tailrace.broker.core.delayed import DelayedResponse, IncrementalResponse
from tailrace.protocol.codec import Encoded, encode_structure

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

MEMBERS_A_STEP = 10


def describe_each(
    group_ids: Iterable[str], describe: Callable[[str], Any], response: type[Any], version: int, broker: "Broker"
) -> Any | DelayedResponse[Any]:
    """Returns a response with the structures that `describe` makes of the groups, once all that they may depend on is
    on disk. They have members.
    """
    names = list(dict.fromkeys(group_ids))

    def describe_all() -> Generator[None, None, Any]:
        fragments = []
        for group_id in names:
            described = describe(group_id)
            fragments.append(encode_structure(described, response, version))
            for _ in range(1 + len(described.members) // MEMBERS_A_STEP):
                yield
        return response(groups=Encoded(len(fragments), b"".join(fragments)))

    return broker.groups.when_safe(IncrementalResponse(describe_all(), broker.start_job), *names)
