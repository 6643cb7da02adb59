"""Connects the gateway to a cluster."""

from collections.abc import Mapping

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import BadOption
from tailrace.client.options import ClientOptions, Isolation

# An HTTP client does not wait for longer than this for a cluster that cannot be reached.
PATIENCE = {"default.api.timeout.ms": "10000", "request.timeout.ms": "30000", "client.id": "tailrace-gateway"}


class BadProperties(Exception):
    """A property of the connection is unknown or invalid."""


def connect(properties: Mapping[str, str], isolation: Isolation) -> Cluster:
    """Returns a client for these properties, by Kafka's names. Raises BadProperties."""
    level = {"isolation.level": isolation.name.lower()}
    try:
        return Cluster(ClientOptions.from_properties({**PATIENCE, **properties, **level}))
    except BadOption as error:
        raise BadProperties(str(error)) from None
