"""Brokers that answer, and what verbs about queues ask them first."""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NamedTuple

from tailrace.cli.common.client import AdminClient, ClusterMetadata, ConfigResource, ResourceType
from tailrace.cli.common.connection import REQUEST_SECONDS, Connection
from tailrace.cli.common.output import ExitCode, Failure, plural
from tailrace.cli.queue.requests import QueueRequests, ShareGroup, ShareOffset, TopicPartition


class Here(NamedTuple):
    brokers: Connection
    admin: AdminClient
    metadata: ClusterMetadata
    requests: QueueRequests

    def require(self, name: str) -> ShareGroup:
        """Raises Failure if there is no such queue, with similar names that may have been meant."""
        found = self.requests.share_group(name) if name else None
        if found is not None:
            return found
        message = f"there is no queue {name!r} at {self.brokers.bootstrap}"
        if close := get_close_matches(name, [one.name for one in self.requests.share_groups()], n=3, cutoff=0.7):
            raise Failure(f"{message}; did you mean {' or '.join(close)}?", ExitCode.NOT_FOUND)
        raise Failure(f"{message}\n  `tailrace queue create {name or 'GROUP'} TOPIC` makes it", ExitCode.NOT_FOUND)

    def offsets_of(self, name: str, topic: str, *, states_max: int = 0) -> dict[TopicPartition, ShareOffset]:
        """Where the queue is in a topic. Raises Failure if it is no queue of that topic. `states_max` is for how many
        messages of a partition their states are asked for.
        """
        offsets = self.requests.offsets(name, states_max=states_max)
        found = {at: one for at, one in offsets.items() if at.topic == topic}
        if not found:
            topics = sorted({at.topic for at in offsets})
            of = f"it is one of {', '.join(topics)}" if topics else "it has no topics yet"
            raise Failure(f"{name} is no queue of topic {topic}: {of}", ExitCode.NOT_FOUND)
        return found

    def topic_config(self, topic: str, name: str) -> str | None:
        """None if topics have no such config."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = self.admin.describe_configs([resource], request_timeout=REQUEST_SECONDS).values()
        found = self.brokers.result(future, f"the configs of {topic} cannot be read").get(name)
        return None if found is None else str(found.value)


@contextmanager
def reach(bootstrap: str, client_config: list[str] | None) -> Iterator[Here]:
    brokers = Connection(bootstrap, client_config)
    admin = brokers.admin()
    metadata = brokers.metadata(admin)  # says why, where no broker answers
    with QueueRequests(brokers) as requests:
        yield Here(brokers, admin, metadata, requests)


def members_of(group: ShareGroup) -> list[str]:
    """Clients and their hosts, as messages name them."""
    return [f"{member.client_id} at {member.host}" for member in group.members]


def require_no_members(name: str, members: list[str], doing: str) -> None:
    """Refuses while the group has members: the broker does."""
    if not members:
        return
    more = f" and {len(members) - 5} more" if len(members) > 5 else ""
    raise Failure(
        f"{doing}: queue {name} has {plural(len(members), 'member')} ({', '.join(members[:5])}{more})\n"
        "  stop them first, then try again; one that was killed counts until its session times out, mostly 45 s",
        ExitCode.REFUSED,
    )
