"""Requests that confluent-kafka does not have, made by our private client: client quotas, configs of all brokers and of
groups, epochs of consumer groups, share groups, and transactions.

The only module of the command line that imports that client. Its errors become a `Failure` with an exit code.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from tailrace.cli.common.connection import REQUEST_SECONDS, Connection
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.client import groups, offsets
from tailrace.client.admin import configs, quotas, transactions
from tailrace.client.admin.configs import Config, Setting
from tailrace.client.admin.quotas import Entity, Quotas
from tailrace.client.admin.transactions import Transaction
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import (
    BadOption,
    BrokerNotFound,
    ClientError,
    ConnectionLost,
    GaveUp,
    NotOffered,
    Refused,
    describe,
)
from tailrace.client.groups import ConsumerGroup
from tailrace.client.options import ClientOptions, Isolation
from tailrace.client.produce import ProducerId
from tailrace.client.share import groups as share_groups
from tailrace.client.share.groups import ShareGroup, ShareGroupMember
from tailrace.client.transactions import take_over

__all__ = [
    "AdminRequests",
    "Config",
    "ConsumerGroup",
    "Entity",
    "ProducerId",
    "Quotas",
    "Setting",
    "ShareGroup",
    "ShareGroupMember",
    "TopicPartition",
    "Transaction",
]

_MILLISECONDS = str(round(REQUEST_SECONDS * 1000))


class AdminRequests:
    """Closed by `with`, as it keeps connections."""

    def __init__(self, brokers: Connection) -> None:
        given = {"request.timeout.ms": _MILLISECONDS, "default.api.timeout.ms": _MILLISECONDS, **brokers.properties}
        with failures():
            self._cluster = Cluster(ClientOptions.from_properties(given))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def broker_configs(self, broker: int | None) -> dict[str, Config]:
        """All configs of one broker; with None, those that were set for all brokers."""
        with failures():
            return configs.broker_configs(self._cluster, broker)

    def alter_broker_configs(
        self, broker: int | None, changes: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        with failures():
            configs.alter_broker_configs(self._cluster, broker, changes, validate_only=validate_only)

    def group_configs(self, group: str) -> dict[str, Config]:
        """All configs of a group, which need not exist."""
        with failures():
            return configs.group_configs(self._cluster, group)

    def alter_group_configs(self, group: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        with failures():
            configs.alter_group_configs(self._cluster, group, changes, validate_only=validate_only)

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """Epochs and targets of a consumer group (KIP-848); None if it is none any more."""
        with failures():
            return groups.describe_consumer_group(self._cluster, group)

    def share_group(self, group: str) -> ShareGroup | None:
        """None if there is no share group of that name."""
        with failures():
            return share_groups.describe(self._cluster, group)

    def share_groups(self) -> list[ShareGroup]:
        """All share groups, by name."""
        with failures():
            return share_groups.described(self._cluster)

    def quotas(self, entity: Entity, *, strict: bool = False) -> list[Quotas]:
        """Those of all entities that have all names of `entity`; with `strict`, of that entity alone."""
        with failures():
            return quotas.quotas(self._cluster, entity, strict=strict)

    def alter_quotas(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
        with failures():
            quotas.alter_quotas(self._cluster, entity, changes, validate_only=validate_only)

    def transactions(self, states: Iterable[str] = ()) -> list[Transaction]:
        """All transactional ids, or those in these states, which are Kafka's: `PrepareCommit`."""
        with failures():
            return transactions.transactions(self._cluster, states)

    def transaction(self, transactional_id: str) -> Transaction | None:
        """None for an id that is not known."""
        with failures():
            return transactions.transaction(self._cluster, transactional_id)

    def first_offsets(self, found: Transaction) -> dict[TopicPartition, int | None]:
        """Where a transaction begins in its partitions, without those that are gone; None if nothing of it is there."""
        with failures():
            return transactions.first_offsets(self._cluster, found.producer_id, self._existing(found))

    def last_stable_offsets(self, found: Transaction) -> dict[TopicPartition, int]:
        """Where consumers of committed records stop in its partitions, without those that are gone."""
        with failures():
            return offsets.latest(self._cluster, self._existing(found), Isolation.READ_COMMITTED)

    def fence(self, found: Transaction) -> ProducerId:
        """Fences the producer of a transactional id, and aborts its open transaction. Returns the id's new producer."""
        with failures():
            return take_over(self._cluster, found.transactional_id, found.timeout_ms)

    def _existing(self, found: Transaction) -> list[TopicPartition]:
        topics = self._cluster.topics({partition.topic for partition in found.partitions})
        return [one for one in found.partitions if one.topic in topics and one.partition in topics[one.topic].leaders]


@contextmanager
def failures() -> Iterator[None]:
    """Raises errors of the client as a Failure."""
    try:
        yield
    except ClientError as error:
        raise _failure(error) from None


def _failure(error: ClientError) -> Failure:
    match error:
        case BadOption():
            return Failure(f"--client-config: {error}", ExitCode.USAGE)
        case BrokerNotFound():
            return Failure(str(error), ExitCode.NOT_FOUND)
        case ConnectionLost() | GaveUp():
            return Failure(str(error), ExitCode.NOT_REACHABLE)
        case NotOffered():
            api = error.request.removesuffix("Request")
            return Failure(f"the broker at {error.address} has no {api}, which this verb needs: {error.offered}")
        case Refused():
            return Failure(f"{error.about}: {error.said or describe(error.code)}", ExitCode.REFUSED)
        case _:
            return Failure(str(error))
