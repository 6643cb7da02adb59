"""Coordinators of groups and transactions: found, cached, and retried until they respond."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.retry import Retry
from tailrace.client.errors import ClientError, ConnectionLost, Refused, refusal
from tailrace.client.options import Address
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")

_ONE_KEY_MAX = 3  # later versions of FindCoordinator take many keys
_TYPES_SINCE = 1
# Errors of the right coordinator while it is not ready: finding the coordinator again does not help.
_BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT)


class Kind(IntEnum):
    """The kind of a coordinator, as on the wire."""

    GROUP = 0
    TRANSACTION = 1


def ask(
    cluster: Cluster,
    kind: Kind,
    key: str,
    request: Any,
    response: type[T],
    versions: tuple[int, int],
    check: Callable[[T], ClientError | None],
    retry: Retry,
) -> T:
    """Returns the coordinator's response; retriable errors are retried, at a new coordinator if it has moved."""
    while True:
        address = coordinator(cluster, kind, key, retry)
        trouble: ClientError | None
        try:
            deadline = retry.request_deadline()
            with cluster.pool.lease(address, deadline) as connection:
                answer = connection.ask(request, response, deadline, at_least=versions[0], at_most=versions[1])
            trouble = check(answer)
        except ConnectionLost as error:
            trouble = error
        else:
            if trouble is None:
                return answer
        if not (isinstance(trouble, Refused) and trouble.code in _BUSY):
            cluster.forget_coordinator((kind, key))
        retry.pause(trouble)


def forget(cluster: Cluster, key: str) -> None:
    """Drops the cached coordinator of a key that is no longer needed: the cache lives as long as the process."""
    for kind in Kind:
        cluster.forget_coordinator((kind, key))


def coordinator(cluster: Cluster, kind: Kind, key: str, retry: Retry) -> Address:
    while True:
        if (known := cluster.coordinator((kind, key))) is not None:
            return known
        request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = cluster.ask_any(
            request, FindCoordinatorResponse, retry, at_least=_TYPES_SINCE if kind else 0, at_most=_ONE_KEY_MAX
        )
        if not answer.error_code:
            cluster.remember_coordinator((kind, key), (answer.host, answer.port))
        else:
            what = f"the coordinator of {kind.name.lower()} {key}"
            retry.pause(refusal(what, answer.error_code, answer.error_message))
