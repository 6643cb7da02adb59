"""Connects the monitor to a cluster, and turns errors of the client into kinds that a command line tells apart."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import BadOption, ClientError, ConnectionLost, GaveUp
from tailrace.client.options import ClientOptions

PATIENT = {"default.api.timeout.ms": "10000", "client.id": "tailrace-monitor"}


class MonitorError(Exception):
    """The cluster cannot be observed."""


class BadProperties(MonitorError):
    """A property of the connection is unknown or invalid."""


class NotReachable(MonitorError):
    """No broker responds; `why` is what the last attempt met."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(text)
        self.why = why


def connect(properties: Mapping[str, str]) -> Cluster:
    """Returns a client for these properties, by Kafka's names. Raises BadProperties."""
    try:
        return Cluster(ClientOptions.from_properties({**PATIENT, **properties}))
    except BadOption as error:
        raise BadProperties(str(error)) from None


@contextmanager
def errors_as_monitor_errors() -> Iterator[None]:
    try:
        yield
    except ConnectionLost as error:
        raise NotReachable(str(error), error.why) from error
    except GaveUp as error:
        if isinstance(error.__cause__, ConnectionLost):
            raise NotReachable(str(error), error.__cause__.why) from error
        raise MonitorError(str(error)) from error
    except ClientError as error:
        raise MonitorError(str(error)) from error
