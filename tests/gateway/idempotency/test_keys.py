"""Requests with an Idempotency-Key: written once, and answered the same, by any gateway and after any restart."""

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from gateway.conftest import OURS, problem_of
from gateways import RunningGateway
from waits import until

from tailrace.gateway.idempotency import keys
from tailrace.gateway.idempotency.key_log import TOPIC

NewTopic = Callable[..., str]
Read = Callable[..., dict[str, Any]]


def new_key() -> str:
    return secrets.token_hex(8)


def send(url: str, topic: str, key: str, *values: str, **further: Any) -> httpx.Response:
    messages = [{"value": value} | further for value in values]
    body = messages[0] if len(messages) == 1 else {"messages": messages}
    return httpx.post(f"{url}/v1/topics/{topic}", json=body, headers={"Idempotency-Key": key}, timeout=60)


def values(page: dict[str, Any]) -> list[str]:
    return [one["value"] for one in page["messages"]]


def test_a_repeat_gets_the_same_response_and_writes_nothing(
    gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    topic, key = new_topic(3), new_key()
    first = send(gateway.url, topic, key, "a", "b", "c")
    assert first.status_code == 200, first.text
    assert "idempotency-replayed" not in first.headers
    for _ in range(3):
        again = send(gateway.url, topic, key, "a", "b", "c")
        assert (again.status_code, again.content) == (200, first.content)
        assert again.headers["idempotency-replayed"] == "true"
    found = [value for partition in range(3) for value in values(read(topic, partition=partition))]
    assert sorted(found) == ["a", "b", "c"]
    places = [(one["partition"], one["offset"]) for one in first.json()["messages"]]
    for value, (partition, offset) in zip("abc", places, strict=True):
        assert values(read(topic, partition=partition, start=offset, max=1)) == [value]


def test_a_key_that_was_used_for_another_request_is_refused(gateway: RunningGateway, new_topic: NewTopic) -> None:
    topic, key = new_topic(), new_key()
    assert send(gateway.url, topic, key, "a").status_code == 200
    assert problem_of(send(gateway.url, topic, key, "b")) == (422, "key-reused")
    assert problem_of(send(gateway.url, new_topic(), key, "a")) == (422, "key-reused")
    raw = httpx.post(
        f"{gateway.url}/v1/topics/{topic}",
        content=b'{"value":"a"}',
        headers={"Idempotency-Key": key, "content-type": "application/x-other"},
        timeout=60,
    )
    assert problem_of(raw) == (422, "key-reused")
    assert send(gateway.url, topic, key, "a").headers["idempotency-replayed"] == "true"


def test_keys_are_known_over_a_restart_of_the_gateway(
    bootstrap: str, gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    topic = new_topic()
    sent = {new_key(): f"value {n}" for n in range(20)}
    with RunningGateway(bootstrap) as first:
        answers = {key: send(first.url, topic, key, value).json() for key, value in sent.items()}
    with RunningGateway(bootstrap) as second:
        for key, value in sent.items():
            again = send(second.url, topic, key, value)
            assert (again.json(), again.headers["idempotency-replayed"]) == (answers[key], "true")
    assert sorted(values(read(topic))) == sorted(sent.values())


def test_requests_that_came_together_share_transactions(
    gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    topic = new_topic(2)
    before = gateway.gateway.keys.store.transactions
    failed: list[str] = []

    def work(worker: int) -> None:
        for n in range(10):
            response = send(gateway.url, topic, f"{topic}/{worker}/{n}", f"{worker}/{n}")
            if response.status_code != 200:
                failed.append(response.text)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    found = [value for partition in (0, 1) for value in values(read(topic, partition=partition, max=1000))]
    assert sorted(found) == sorted(f"{worker}/{n}" for worker in range(10) for n in range(10))
    assert gateway.gateway.keys.store.transactions - before < 100


def test_concurrent_repeats_write_once_and_are_told_that_it_is_in_progress(
    gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    topic, key = new_topic(), new_key()
    responses: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda: responses.append(send(gateway.url, topic, key, "once"))) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.status_code for one in responses} <= {200, 409}
    for one in responses:
        if one.status_code == 409:
            assert problem_of(one) == (409, "in-progress")
            assert one.headers["retry-after"]
    assert send(gateway.url, topic, key, "once").headers["idempotency-replayed"] == "true"
    assert values(read(topic)) == ["once"]


def test_a_key_in_progress_refuses_another_request(gateway: RunningGateway, new_topic: NewTopic) -> None:
    topic, key = new_topic(), new_key()
    gateway.on_loop(lambda: gateway.gateway.keys._in_progress.update({key: "another"}))
    assert problem_of(send(gateway.url, topic, key, "a")) == (422, "key-reused")
    gateway.on_loop(lambda: gateway.gateway.keys._in_progress.pop(key))
    assert send(gateway.url, topic, key, "a").status_code == 200


def test_two_gateways_take_turns_and_write_each_key_once(
    bootstrap: str, gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    topic = new_topic()
    wanted = [f"{topic}/{n}" for n in range(15)]
    answers: dict[str, set[bytes]] = {key: set() for key in wanted}

    def work(url: str) -> None:
        for key in wanted:
            until(lambda key=key: keep(send(url, topic, key, key), key), 60)  # type: ignore[misc]

    def keep(response: httpx.Response, key: str) -> bool:
        if response.status_code == 200:
            answers[key].add(response.content)
        return response.status_code == 200

    with RunningGateway(bootstrap) as one, RunningGateway(bootstrap) as other:
        threads = [threading.Thread(target=work, args=(running.url,)) for running in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(found) for found in answers.values()] == [1] * len(wanted)
    assert sorted(values(read(topic))) == sorted(wanted)


def test_a_request_that_is_refused_takes_no_other_with_it_and_is_not_remembered(
    gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    small, other = new_topic(max_message_bytes="2000"), new_topic()
    key = new_key()
    found: dict[str, int] = {}

    def work(topic: str, key: str, value: str) -> None:
        found[key] = send(gateway.url, topic, key, value).status_code

    jobs = [(small, key, "x" * 5000), *((other, new_key(), "x" * n) for n in range(1, 6)), (small, new_key(), "y")]
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {of: 413 if of == key else 200 for _, of, _ in jobs}
    assert sorted(map(len, values(read(other)))) == [1, 2, 3, 4, 5]
    assert values(read(small)) == ["y"]
    assert send(gateway.url, small, key, "short").status_code == 200


def test_a_long_request_is_written_whole(gateway: RunningGateway, new_topic: NewTopic, read: Read) -> None:
    topic, key = new_topic(2), new_key()
    messages = [{"value": f"{n:05}" + "x" * 900, "partition": n % 2} for n in range(2000)]
    sent = {"json": {"messages": messages}, "headers": {"Idempotency-Key": key}, "timeout": 60}
    first = httpx.post(f"{gateway.url}/v1/topics/{topic}", **sent)  # type: ignore[arg-type]
    assert first.status_code == 200, first.text
    again = httpx.post(f"{gateway.url}/v1/topics/{topic}", **sent)  # type: ignore[arg-type]
    assert again.content == first.content
    for partition in (0, 1):
        start, found = 0, []
        while (page := read(topic, partition=partition, start=start, max=1000))["messages"]:
            found += [value[:5] for value in values(page)]
            start = page["next_offset"]
        assert found == [f"{n:05}" for n in range(partition, 2000, 2)]


def test_keys_are_forgotten_beyond_their_number(
    bootstrap: str, gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    topic = new_topic()
    with RunningGateway(bootstrap, {"tailrace.http.idempotency.keys": "3"}) as small:
        sent = [new_key() for _ in range(5)]
        for key in sent:
            assert send(small.url, topic, key, key).status_code == 200
        assert send(small.url, topic, sent[-1], sent[-1]).headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in send(small.url, topic, sent[0], sent[0]).headers
        until(lambda: "tailrace_http_idempotency_keys 3\n" in httpx.get(f"{small.url}/metrics").text, 10)
    assert len(read(topic)["messages"]) == 6


def test_keys_are_forgotten_after_their_time(
    bootstrap: str, gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    topic, key = new_topic(), new_key()
    with RunningGateway(bootstrap, {"tailrace.http.idempotency.ms": "1000"}) as short:
        assert send(short.url, topic, key, "a").status_code == 200
        assert send(short.url, topic, key, "a").status_code == 200
        time.sleep(2.5)
        assert send(short.url, topic, new_key(), "b").status_code == 200  # forgets those before it
        assert "idempotency-replayed" not in send(short.url, topic, key, "a").headers
    with RunningGateway(bootstrap, {"tailrace.http.idempotency.ms": "1000"}) as short:
        time.sleep(1.5)
        assert "idempotency-replayed" not in send(short.url, topic, key, "a").headers
    assert values(read(topic)) == ["a", "b", "a", "a"]


@pytest.mark.parametrize("key", ["", "x" * 256, "grün", "a\tb"])
def test_a_key_that_is_none_is_refused(gateway: RunningGateway, key: str) -> None:
    response = httpx.post(
        f"{gateway.url}/v1/topics/never", json={"value": "x"}, headers=[(b"Idempotency-Key", key.encode("latin-1"))]
    )
    assert problem_of(response) == (400, "bad-request")
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert problem_of(httpx.post(f"{gateway.url}/v1/topics/never", json={"value": "x"}, headers=twice))[0] == 400


def test_the_topic_of_keys_is_compacted_and_hidden_and_may_be_deleted(
    gateway: RunningGateway, new_topic: NewTopic, admin: Any, read: Read
) -> None:
    topic, key = new_topic(), new_key()
    assert send(gateway.url, topic, key, "a").status_code == 200
    from confluent_kafka.admin import ConfigResource

    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    configs = admin.describe_configs([resource])[resource].result(20)
    assert configs["cleanup.policy"].value == "compact,delete"
    assert int(configs["retention.ms"].value) >= 86_400_000
    admin.delete_topics([TOPIC])[TOPIC].result(20)
    until(lambda: TOPIC not in admin.list_topics(timeout=10).topics, 20)
    until(lambda: send(gateway.url, topic, key, "a").status_code == 200, 60)
    assert values(read(topic)) == ["a", "a"]


@OURS
def test_the_topic_of_keys_is_a_service_topic(gateway: RunningGateway, new_topic: NewTopic) -> None:
    assert send(gateway.url, new_topic(), new_key(), "a").status_code == 200
    assert httpx.get(f"{gateway.url}/v1/topics/{TOPIC}").json()["internal"] is True


@OURS
def test_a_topic_that_takes_no_messages_delays_others_for_a_moment_only(
    gateway: RunningGateway, new_topic: NewTopic
) -> None:
    policy = {"tailrace_backlog_policy": "reject", "tailrace_backlog_groups": "late", "tailrace_backlog_bytes": "1000"}
    stuck, other = new_topic(**policy), new_topic()
    until(lambda: send(gateway.url, stuck, new_key(), "x" * 500).status_code == 503, 50)
    begun = time.monotonic()
    assert problem_of(send(gateway.url, stuck, new_key(), "a")) == (503, "unavailable")
    assert time.monotonic() - begun < keys.REST_S, "the topic is not tried again at once"
    assert send(gateway.url, other, new_key(), "a").status_code == 200


def test_a_transaction_that_a_killed_gateway_left_open_ends_with_the_next_start(
    bootstrap: str, gateway: RunningGateway, new_topic: NewTopic, read: Read
) -> None:
    from confluent_kafka import Producer

    from tailrace.gateway.idempotency.store import TRANSACTIONAL_ID

    topic = new_topic()
    assert send(gateway.url, topic, new_key(), "a").status_code == 200
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "never")
    producer.flush(20)
    with RunningGateway(bootstrap):
        until(lambda: (page := read(topic))["end"] > 3 and page["next_offset"] == page["end"], 30)
    assert values(read(topic)) == ["a"]
