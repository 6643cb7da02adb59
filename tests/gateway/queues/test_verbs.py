"""POST /v1/queues/{group}/{topic}/lease, ack, nack and extend."""

import threading
import time
from typing import Any

import httpx
import pytest
from gateway.conftest import OURS, problem_of
from gateway.queues.conftest import HttpQueue, NewQueue, failed
from gateways import RunningGateway
from waits import until


def test_messages_are_leased_and_finished(new_queue: NewQueue) -> None:
    queue = new_queue("a", "b", "c")
    before = time.time() * 1000
    messages = queue.lease(max=2)
    assert [(one["value"], one["offset"], one["attempt"]) for one in messages] == [("a", 0, 1), ("b", 1, 1)]
    assert all(before + 25_000 < one["expires_ms"] <= time.time() * 1000 + 31_000 for one in messages)
    assert queue.done("ack", *(one["lease"] for one in messages)) == (2, [])
    (last,) = queue.lease(max=2)
    assert last["value"] == "c"
    assert queue.lease() == []
    assert queue.done("ack", last["lease"]) == (1, [])
    assert queue.lease() == []


def test_a_message_that_is_given_back_comes_again(new_queue: NewQueue) -> None:
    queue = new_queue("a")
    (first,) = queue.lease()
    assert queue.done("nack", first["lease"], reason="the disk is full") == (1, [])
    (second,) = queue.lease(wait_seconds=10)
    assert (second["value"], second["attempt"]) == ("a", 2)
    assert second["lease"] != first["lease"]
    assert queue.done("ack", first["lease"]) == (0, failed(first["lease"], reason="expired"))
    assert queue.done("ack", second["lease"]) == (1, [])


def test_a_message_that_is_rejected_does_not_come_again(new_queue: NewQueue) -> None:
    queue = new_queue("bad", "good")
    (bad,) = queue.lease()
    assert queue.done("nack", bad["lease"], reject=True, reason="no JSON") == (1, [])
    (good,) = queue.lease(max=10)
    assert good["value"] == "good"


def test_a_request_waits_for_a_message(http: httpx.Client, new_queue: NewQueue) -> None:
    queue = new_queue()
    found: list[dict[str, Any]] = []
    worker = threading.Thread(target=lambda: found.extend(queue.lease(wait_seconds=30)))
    worker.start()
    time.sleep(0.3)
    assert worker.is_alive()
    http.post(f"/v1/topics/{queue.topic}", json={"value": "late"})
    worker.join(20)
    assert [one["value"] for one in found] == ["late"]


def test_some_leases_of_a_request_may_fail(new_queue: NewQueue) -> None:
    queue, other = new_queue("a", "b"), new_queue("x")
    one, two = (message["lease"] for message in queue.lease(max=2))
    (foreign,) = other.lease()
    assert queue.done("ack", one, one) == (1, []), "one that is named twice counts once"
    assert queue.done("ack", one, two, "nonsense", foreign["lease"]) == (
        1,
        [*failed(one, reason="expired"), *failed("nonsense", foreign["lease"], reason="unknown")],
    )
    response = queue.post("ack", leases=[two])
    assert problem_of(response) == (409, "lease-expired")


def test_leases_of_a_queue_that_is_not_open_are_unknown(new_queue: NewQueue) -> None:
    queue = new_queue("a")
    assert queue.done("ack", "nonsense") == (0, failed("nonsense", reason="unknown"))


@OURS
def test_a_lease_ends_at_its_time(new_queue: NewQueue) -> None:
    queue = new_queue("a")
    (first,) = queue.lease(lease_seconds=1)
    (second,) = queue.lease(wait_seconds=30, lease_seconds=1)
    assert time.time() * 1000 >= first["expires_ms"]
    assert second["attempt"] == 2
    assert queue.done("ack", first["lease"]) == (0, failed(first["lease"], reason="expired"))
    assert queue.done("ack", second["lease"]) == (1, [])


@OURS
def test_a_lease_may_be_extended_and_shortened(new_queue: NewQueue) -> None:
    queue = new_queue("long", "short")
    long, short = queue.lease(max=2, lease_seconds=2)
    assert queue.done("extend", long["lease"], lease_seconds=600) == (1, [])
    assert queue.done("extend", short["lease"], lease_seconds=1) == (1, [])
    (again,) = queue.lease(max=2, wait_seconds=30, lease_seconds=60)
    assert again["value"] == "short"
    assert time.time() * 1000 < short["expires_ms"], "it was shortened by a second"
    until(lambda: time.time() * 1000 > long["expires_ms"] + 1500)
    assert queue.lease(max=2) == []
    assert queue.done("ack", long["lease"], again["lease"]) == (2, [])
    assert queue.done("extend", long["lease"])[0] == 0


@OURS
def test_leases_of_different_times_share_a_queue(new_queue: NewQueue) -> None:
    queue = new_queue("a", "b")
    found: list[tuple[int, float, dict[str, Any]]] = []

    def work(seconds: int) -> None:
        (message,) = queue.lease(wait_seconds=20, lease_seconds=seconds)
        found.append((seconds, time.time(), message))

    workers = [threading.Thread(target=work, args=(seconds,)) for seconds in (1, 3600)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert {seconds for seconds, _, _ in found} == {1, 3600}
    for seconds, at, message in found:
        assert abs(message["expires_ms"] / 1000 - at - seconds) < 10


@OURS
def test_a_message_may_be_delayed(new_queue: NewQueue) -> None:
    queue = new_queue("a")
    (first,) = queue.lease()
    given_back = time.time()
    assert queue.done("nack", first["lease"], delay_seconds=2) == (1, [])
    (second,) = queue.lease(wait_seconds=30)
    assert time.time() - given_back >= 1.9
    assert second["attempt"] == 2


def test_another_kafka_has_no_delays(new_queue: NewQueue, is_ours: bool) -> None:
    if is_ours:
        pytest.skip("tailrace has them")
    queue = new_queue("a")
    (message,) = queue.lease(lease_seconds=3600)
    assert message["expires_ms"] < (time.time() + 31) * 1000, "the group's lock duration is 30 s"
    assert problem_of(queue.post("nack", leases=[message["lease"]], delay_seconds=5)) == (501, "not-supported")
    assert queue.done("extend", message["lease"], lease_seconds=3600) == (1, [])
    assert queue.done("nack", message["lease"]) == (1, [])


@OURS
@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("lease", {"max": 0}),
        ("lease", {"max": 1001}),
        ("lease", {"max": True}),
        ("lease", {"wait_seconds": 61}),
        ("lease", {"lease_seconds": 0}),
        ("lease", {"lease_seconds": 3601}),
        ("lease", {"limit": 1}),
        ("ack", {}),
        ("ack", {"leases": []}),
        ("ack", {"leases": "abc"}),
        ("ack", {"leases": [1]}),
        ("ack", {"leases": ["x" * 1000]}),
        ("nack", {"leases": ["x"], "delay_seconds": -1}),
        ("nack", {"leases": ["x"], "delay_seconds": 1, "reject": True}),
        ("nack", {"leases": ["x"], "reject": 1}),
        ("nack", {"leases": ["x"], "reason": 1}),
        ("extend", {"leases": ["x"], "lease_seconds": 4000}),
    ],
)
def test_a_mistake_is_named(http: httpx.Client, verb: str, body: dict[str, Any]) -> None:
    assert problem_of(http.post(f"/v1/queues/group/topic/{verb}", json=body)) == (400, "bad-request")


@OURS
def test_further_errors(http: httpx.Client, new_queue: NewQueue) -> None:
    url = "/v1/queues/group/never-there"
    assert problem_of(http.post(f"{url}/lease", json={})) == (404, "topic-not-found")
    assert problem_of(http.post(f"{url}/ack", json={"leases": ["x"]})) == (404, "topic-not-found")
    assert problem_of(http.get(f"{url}/lease")) == (405, "method-not-allowed")
    assert problem_of(http.post(f"{url}/lease", content=b"{}"))[0] == 415
    json = {"Content-Type": "application/json"}
    assert problem_of(http.post(f"{url}/lease", content=b"[1]", headers=json)) == (400, "bad-request")
    assert problem_of(http.post(f"{url}/lease", content=b"{", headers=json)) == (400, "bad-request")
    assert new_queue("a").lease(max=1)


@OURS
def test_a_group_of_another_kind_is_no_queue(http: httpx.Client, bootstrap: str, new_queue: NewQueue) -> None:
    from confluent_kafka import Consumer

    queue = new_queue("a")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": queue.group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([queue.topic])
        until(lambda: consumer.poll(0.1))
        assert problem_of(queue.post("lease")) == (404, "queue-not-found")
    finally:
        consumer.close()


@OURS
def test_messages_of_a_client_that_has_gone_come_again(gateway: RunningGateway, new_queue: NewQueue) -> None:
    queue = new_queue()
    with httpx.Client(base_url=gateway.url) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"/v1/queues/{queue.group}/{queue.topic}/lease", json={"wait_seconds": 60}, timeout=0.3)
    httpx.post(f"{gateway.url}/v1/topics/{queue.topic}", json={"value": "a"})
    (message,) = queue.lease(wait_seconds=20)
    assert message["value"] == "a"


@OURS
def test_leases_survive_the_connection_and_end_with_the_gateway(bootstrap: str, new_queue: NewQueue) -> None:
    queue = new_queue("a")
    with RunningGateway(bootstrap) as mine:
        with httpx.Client(base_url=mine.url, timeout=40) as client:
            (message,) = HttpQueue(client, queue.group, queue.topic).lease(lease_seconds=3600)
        with httpx.Client(base_url=mine.url, timeout=40) as client:
            assert HttpQueue(client, queue.group, queue.topic).done("extend", message["lease"], lease_seconds=3600)[0]
        assert queue.lease() == []
    (again,) = queue.lease(wait_seconds=30)
    assert (again["value"], again["attempt"]) == ("a", 2)
    assert queue.done("ack", message["lease"]) == (0, failed(message["lease"], reason="unknown"))


@OURS
def test_requests_that_wait_share_a_session(gateway: RunningGateway, new_queue: NewQueue) -> None:
    queue = new_queue()
    found: list[dict[str, Any]] = []
    workers = [threading.Thread(target=lambda: found.extend(queue.lease(wait_seconds=20))) for _ in range(30)]
    for worker in workers:
        worker.start()
    until(lambda: gateway.on_loop(lambda: gateway.gateway._waits.waiting) >= 30)
    values = [str(n) for n in range(30)]
    response = httpx.post(f"{gateway.url}/v1/topics/{queue.topic}", json={"messages": [{"value": v} for v in values]})
    assert response.status_code == 200
    for worker in workers:
        worker.join(30)
    assert sorted(one["value"] for one in found) == sorted(values), "each of them has one, and no two the same"
    assert len([one for one in threading.enumerate() if one.name == f"queue {queue.group} {queue.topic}"]) == 1
    assert queue.done("ack", *(one["lease"] for one in found)) == (30, [])


def test_the_group_of_a_queue_is_shown(http: httpx.Client, new_queue: NewQueue, is_ours: bool) -> None:
    queue = new_queue("a", "b", "c")
    queue.done("ack", queue.lease()[0]["lease"])
    shown = http.get(f"/v1/groups/{queue.group}").json()
    assert (shown["name"], shown["type"], shown["state"], len(shown["members"])) == (queue.group, "share", "Stable", 1)
    (row,) = shown["partitions"]
    assert (row["topic"], row["partition"], row["end"], row["lag"]) == (queue.topic, 0, 3, 2)
    assert row["committed"] == 1 or not is_ours, "Kafka moves it later"
