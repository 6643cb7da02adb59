"""Share groups over sockets: members of a running broker."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from nodes import RunningNode
from raw_client import RawClient
from share_fetches import Delivery, acks_of

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.share_acknowledge import (
    ACCEPT,
    RELEASE,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from tailrace.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from tailrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

GROUP = "workers"
CONFIGS = {"group.share.assignment.interval.ms": "0", "tailrace.monitor.enable": "false"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path, CONFIGS) as node:
        yield node


@pytest.fixture
def topic_id(node: RunningNode) -> bytes:
    return node.create_topic()


class Member:
    """A member with a connection of its own, which has joined."""

    def __init__(self, node: RunningNode, topic_id: bytes, name: str) -> None:
        self.client = RawClient(node.address)
        self.topic_id = topic_id
        self.name = name
        self.epoch = 0
        beat = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=name, member_epoch=0, subscribed_topic_names=["orders"]
        )
        answer = self.client.ask(beat, 1)
        while answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            time.sleep(0.01)
            answer = self.client.ask(beat, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        assert answer.assignment.topic_partitions[0].topic_id == topic_id, "assigned with the first heartbeat"

    def fetch_request(self, acks: Any = None, **fields: Any) -> ShareFetchRequest:
        named = {(self.topic_id, 0): ()} if self.epoch == 0 else {}
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 64 << 20, "max_records": 500, "batch_size": 500}
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch,
            topics=acks_of(named | (acks or {}), FetchTopic, FetchPartition),
            **{**limits, **fields},
        )
        self.epoch += 1
        return request

    def fetch(self, acks: Any = None, **fields: Any) -> Delivery:
        delivery = Delivery(self.client.ask(self.fetch_request(acks, **fields), 2))
        assert delivery.error_code == ErrorCode.NONE, delivery.response
        return delivery

    def begin_fetch(self, **fields: Any) -> None:
        self.client.send(self.fetch_request(**{"max_wait_ms": 20_000, **fields}), 2)

    def await_fetch(self) -> Delivery:
        return Delivery(self.client.receive())

    def acknowledge_request(self, kind: int, first: int, last: int) -> ShareAcknowledgeRequest:
        acks = acks_of({(self.topic_id, 0): [(first, last, [kind])]}, AcknowledgeTopic, AcknowledgePartition)
        request = ShareAcknowledgeRequest(
            group_id=GROUP, member_id=self.name, share_session_epoch=self.epoch, topics=acks
        )
        self.epoch += 1
        return request

    def say(self, kind: int, first: int, last: int) -> int:
        response = self.client.ask(self.acknowledge_request(kind, first, last), 2)
        assert response.error_code == ErrorCode.NONE, response
        return int(response.responses[0].partitions[0].error_code)

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()


def test_members_share_messages_over_sockets(node: RunningNode, topic_id: bytes) -> None:
    with Member(node, topic_id, "a") as first, Member(node, topic_id, "b") as second:
        first.begin_fetch()
        second.begin_fetch()
        with RawClient(node.address) as producer:
            producer.produce(b"one")
            assert first.await_fetch().values == [b"one"]
            producer.produce(b"two")
            assert second.await_fetch().values == [b"two"]
        assert first.say(ACCEPT, 0, 0) == ErrorCode.NONE
        assert second.say(RELEASE, 1, 1) == ErrorCode.NONE
        assert first.fetch().acquired == [(1, 1, 2)]


def test_large_messages_are_sent_whole(node: RunningNode, topic_id: bytes) -> None:
    """They go from the page cache to the socket."""
    values = [bytes([n]) * 900_000 for n in range(5)]
    with Member(node, topic_id, "a") as member, RawClient(node.address) as producer:
        for value in values:
            producer.produce(value)
        assert member.fetch().values == values
        assert member.say(RELEASE, 2, 3) == ErrorCode.NONE
        assert member.fetch().values == values[2:4]


@pytest.mark.parametrize("how", ["close", "reset", "amid"])
def test_a_member_whose_connection_is_lost_gives_its_messages_to_others_at_once(
    node: RunningNode, topic_id: bytes, how: str
) -> None:
    with Member(node, topic_id, "b") as other, RawClient(node.address) as producer:
        lost = Member(node, topic_id, "a")
        producer.produce(b"one", b"two")
        assert lost.fetch().offsets == [0, 1]
        other.begin_fetch()
        began = time.monotonic()
        if how == "amid":
            lost.client.socket.sendall(b"\x00\x00")
        if how == "reset":
            lost.client.reset()
        else:
            lost.client.close()
        assert other.await_fetch().acquired == [(0, 1, 2)]
        assert time.monotonic() - began < 15, "before its lock would have run out"


def test_an_acknowledgement_behind_a_waiting_fetch_is_not_held_up(node: RunningNode, topic_id: bytes) -> None:
    """librdkafka sends both over one connection, and responses come in order."""
    with Member(node, topic_id, "a") as member, RawClient(node.address) as producer:
        producer.produce(b"one")
        assert member.fetch().offsets == [0]
        began = time.monotonic()
        member.begin_fetch()
        member.client.send(member.acknowledge_request(ACCEPT, 0, 0), 2)
        assert member.await_fetch().offsets == []
        assert member.client.receive().responses[0].partitions[0].error_code == ErrorCode.NONE
        assert time.monotonic() - began < 15, "the fetch would have waited for longer"


def test_a_restarted_broker_goes_on_where_members_were(tmp_path: Path) -> None:
    with RunningNode(tmp_path, CONFIGS) as node:
        topic_id = node.create_topic()
        with Member(node, topic_id, "a") as member, RawClient(node.address) as producer:
            producer.produce(b"one", b"two", b"three")
            member.fetch()
            member.say(ACCEPT, 1, 1)
    with RunningNode(tmp_path, CONFIGS) as node, Member(node, topic_id, "a") as member:
        delivery = member.fetch(max_wait_ms=10_000)
        assert delivery.values == [b"one", b"three"]


def test_a_stop_answers_the_fetches_that_wait(tmp_path: Path) -> None:
    with RunningNode(tmp_path, CONFIGS) as node:
        topic_id = node.create_topic()
        with Member(node, topic_id, "a") as member:
            member.begin_fetch()
            node.until(lambda: bool(node.node.broker.partition("orders", 0).waiting_fetches))  # type: ignore[union-attr]
            node.stop()
            assert member.await_fetch().offsets == []


def test_metrics_tell_about_queues(node: RunningNode, topic_id: bytes) -> None:
    assert "tailrace_queue_backlog{" not in page(node)
    with Member(node, topic_id, "a") as member, RawClient(node.address) as producer:
        producer.produce(*(b"%d" % n for n in range(5)))
        member.fetch()
        member.say(ACCEPT, 0, 1)
        member.say(RELEASE, 2, 2)
        lines = page(node).splitlines()
        labels = '{group="workers",topic="orders"}'
        for name, value in (
            ("backlog", 3),
            ("in_flight", 2),
            ("parked", 0),
            ("acknowledged_total", 2),
            ("released_total", 1),
            ("dead_lettered_total", 0),
            ("expired_total", 0),
            ("lost_total", 0),
        ):
            assert f"tailrace_queue_{name}{labels} {value}" in lines
        (age,) = (line for line in lines if line.startswith("tailrace_queue_oldest_seconds{"))
        assert float(age.split()[-1]) > 0
        member.say(ACCEPT, 3, 4)
        member.fetch()
        member.say(ACCEPT, 2, 2)
        assert f"tailrace_queue_oldest_seconds{labels} 0.0" in page(node).splitlines()


def page(node: RunningNode) -> str:
    assert node.pages.address is not None
    host, port = node.pages.address
    with urlopen(f"http://{host}:{port}/metrics", timeout=30) as response:
        text: str = response.read().decode()
    return text
