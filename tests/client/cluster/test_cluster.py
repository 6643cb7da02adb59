import contextlib
import os
import secrets
import socket
import threading
import time

import pytest
from client.conftest import create_topic, delete_topic, options, write
from client.fakes import HANG_UP, FakeBroker, once
from compat.brokers import BrokerProcess

from tailrace.client.cluster.cluster import Cluster, close_all, cluster_for
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import (
    AuthenticationFailed,
    ConnectionLost,
    GaveUp,
    NotAuthorized,
    NotOffered,
    TopicNotFound,
    TopicRecreated,
)
from tailrace.client.net.pool import IDLE_MAX
from tailrace.client.offsets import latest
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.list_offsets import ListOffsetsRequest
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

ORDERS = TopicPartition("orders", 0)


def a_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_topics_have_ids_and_partitions(cluster: Cluster, topic: str) -> None:
    found = cluster.topic(topic)
    assert found.has_id
    assert found.partitions == [TopicPartition(topic, 0)]
    assert cluster.all_topics()[topic] == found
    assert not found.is_internal


def test_the_first_server_that_answers_will_do(bootstrap: str, topic: str) -> None:
    with contextlib.closing(Cluster(options(f"127.0.0.1:{a_free_port()},{bootstrap}"))) as cluster:
        assert cluster.topic(topic).partitions


def test_a_topic_that_is_not_there_is_not_created_by_asking(cluster: Cluster) -> None:
    with pytest.raises(TopicNotFound, match="no topic never-made; check its name"):
        cluster.topic("never-made")
    assert "never-made" not in cluster.all_topics()
    with pytest.raises(TopicNotFound):
        latest(cluster, [TopicPartition("never-made", 0)])


def test_many_topics_are_fetched_in_one_request_without_those_that_do_not_exist(
    faked: Cluster, fake: FakeBroker
) -> None:
    fake.topics |= {"payments": [[]]}
    assert list(faked.topics(["orders", "payments"])) == ["orders", "payments"]
    assert fake.count(MetadataRequest) == 1
    assert list(faked.topics(["nowhere", "orders"])) == ["orders"]
    assert faked.topics([]) == {}


def test_a_partition_that_is_not_there_is_named(cluster: Cluster, topic: str) -> None:
    with pytest.raises(TopicNotFound, match=f"no partition 7 of topic {topic}"):
        latest(cluster, [TopicPartition(topic, 7)])


def test_a_topic_that_was_made_again_is_another(cluster: Cluster, topic: str) -> None:
    before = cluster.topic(topic).topic_id
    delete_topic(cluster, topic)
    create_topic(cluster, topic)
    with pytest.raises(TopicRecreated, match=f"{before.hex()}.*begin anew"):
        cluster.topic(topic, expect_id=before, fresh=True)


def test_nobody_there_is_given_up_in_time_with_the_reason() -> None:
    nowhere = options(f"127.0.0.1:{a_free_port()}", default_api_timeout_ms="300")
    before = time.monotonic()
    with pytest.raises(GaveUp, match=r"listing topics: given up after 0.3 s; last: .*refused") as error:
        Cluster(nowhere).all_topics()
    assert time.monotonic() - before < 20
    assert isinstance(error.value.__cause__, ConnectionLost)


def test_connections_are_kept(faked: Cluster, fake: FakeBroker) -> None:
    for _ in range(5):
        faked.all_topics()
    assert fake.count(ApiVersionsRequest) == 1


def test_only_so_many_idle_connections_are_kept(faked: Cluster, fake: FakeBroker) -> None:
    retry = faked.retry("test")
    address = ("127.0.0.1", fake.port)
    taken = [faked.take(address, retry) for _ in range(IDLE_MAX + 2)]
    for connection in taken:
        faked.pool.give_back(connection)
    assert sum(connection.is_closed for connection in taken) == 2


def test_a_connection_that_the_broker_has_closed_is_replaced(faked: Cluster, fake: FakeBroker) -> None:
    fake.answers[MetadataRequest] = once(
        lambda request, version: fake.metadata(request),
        lambda request, version: HANG_UP,
        lambda request, version: fake.metadata(request),
    )
    for _ in range(2):
        assert "orders" in faked.all_topics()
    assert fake.count(MetadataRequest) == 3


def test_one_cluster_for_each_set_of_options(bootstrap: str) -> None:
    try:
        assert cluster_for(options(bootstrap)) is cluster_for(options(bootstrap))
        assert cluster_for(options(bootstrap)) is not cluster_for(options(bootstrap, client_id="another"))
    finally:
        close_all()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_connections_of_its_own(bootstrap: str, topic: str) -> None:
    """Parent and child ask at the same time; with one socket for both, answers would get mixed."""
    kept = cluster_for(options(bootstrap))
    write(kept, topic, b"a", b"b")
    where = TopicPartition(topic, 0)
    retry = kept.retry("test")
    leader = kept.leader(where, retry)
    assert leader is not None
    held = kept.take(leader.address, retry)  # in use while the process forks
    read, wrote = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            assert not held.is_usable
            same = cluster_for(options(bootstrap))
            os.write(wrote, b"%d" % sum(latest(same, [where])[where] for _ in range(50)))
            status = 0
        os._exit(status)
    try:
        assert all(latest(kept, [where])[where] == 2 for _ in range(50))
        assert held.is_usable
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert os.read(read, 100) == b"100"
    finally:
        os.close(read)
        os.close(wrote)
        kept.pool.give_back(held)
        close_all()


def test_threads_need_not_know_of_each_other(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, b"a")
    where = TopicPartition(topic, 0)
    seen: list[int] = []

    def ask() -> None:
        seen.extend(latest(cluster, [where])[where] for _ in range(30))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 120


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_leader_that_is_none_any_more_is_looked_for_again(
    faked: Cluster, fake: FakeBroker, another_fake: FakeBroker, code: ErrorCode
) -> None:
    def moved(request: ListOffsetsRequest, version: int) -> object:
        fake.leaders["orders", 0] = another_fake.node_id
        answer = fake.list_offsets(request)
        answer.topics[0].partitions[0].error_code = code
        return answer

    fake.answers[ListOffsetsRequest] = moved
    assert latest(faked, [ORDERS]) == {ORDERS: 0}
    assert (fake.count(ListOffsetsRequest), another_fake.count(ListOffsetsRequest)) == (1, 1)


def test_a_partition_without_a_leader_is_waited_for(faked: Cluster, fake: FakeBroker) -> None:
    fake.leaders["orders", 0] = -1

    def elected(request: MetadataRequest, version: int) -> MetadataResponse:
        if fake.count(MetadataRequest) > 2:
            fake.leaders["orders", 0] = 0
        return fake.metadata(request)

    fake.answers[MetadataRequest] = elected
    assert latest(faked, [ORDERS]) == {ORDERS: 0}


def test_what_is_not_allowed_is_told_at_once(faked: Cluster, fake: FakeBroker) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = MetadataResponse(topics=[MetadataResponseTopic(error_code=code, name="orders")])
    fake.answers[MetadataRequest] = lambda request, version: answer
    with pytest.raises(NotAuthorized, match="needs an ACL"):
        faked.topic("orders")
    with pytest.raises(NotAuthorized):
        latest(faked, [ORDERS])


def test_a_wrong_password_is_not_tried_again(fake: FakeBroker) -> None:
    del fake.versions[17]
    given = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "a",
        "sasl_password": "b",
    }
    with pytest.raises((AuthenticationFailed, NotOffered)):
        Cluster(options(fake.bootstrap, **given)).all_topics()
    assert fake.count(ApiVersionsRequest) == 1


def test_a_broker_that_is_killed_and_comes_back_is_found_again(own_broker: BrokerProcess) -> None:
    with contextlib.closing(Cluster(options(own_broker.bootstrap))) as cluster:
        create_topic(cluster, "orders")
        write(cluster, "orders", b"a")
        own_broker.kill()
        starter = threading.Thread(target=own_broker.start)
        starter.start()
        try:
            assert latest(cluster, [ORDERS]) == {ORDERS: 1}
        finally:
            starter.join()
        assert write(cluster, "orders", b"b") == 1


def test_a_topic_that_may_be_created_is(cluster: Cluster) -> None:
    name = f"new-{secrets.token_hex(4)}"
    with pytest.raises(TopicNotFound):
        cluster.topic(name)
    assert cluster.topic(name, may_create=True).partitions
    assert cluster.topic(name, fresh=True).partitions
