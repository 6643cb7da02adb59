"""POST /v1/topics/{topic}: one message, many, or the body itself; what is written is what any Kafka client reads."""

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from gateway.conftest import problem_of
from gateways import RunningGateway
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Post = Callable[..., list[dict[str, int]]]
Read = Callable[..., dict[str, Any]]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.none() | texts | st.binary(max_size=30)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def consumed(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return consumer.consume(count, 20)
    finally:
        consumer.close()


def test_a_message_is_what_other_clients_read(bootstrap: str, new_topic: Callable[..., str], post: Post) -> None:
    topic = new_topic()
    headers = [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]]
    message = {"key": "grüße", "value_base64": "AP8=", "headers": headers, "timestamp": 1_794_744_000_123}
    assert post(topic, message, {"value": {"id": 1, "name": "é"}}, {"key": 7, "value": None}) == [
        {"partition": 0, "offset": 0},
        {"partition": 0, "offset": 1},
        {"partition": 0, "offset": 2},
    ]
    first, second, third = consumed(bootstrap, topic, 3)
    assert (first.key(), first.value()) == ("grüße".encode(), b"\0\xff")
    assert first.headers() == [("a", b"1"), ("a", None), ("b", b"\xff")]
    assert first.timestamp()[1] == 1_794_744_000_123
    assert (second.key(), second.value()) == (None, '{"id":1,"name":"é"}'.encode())
    assert (third.key(), third.value()) == (b"7", None)


def test_one_message_needs_no_list(http: httpx.Client, new_topic: Callable[..., str], read: Read) -> None:
    topic = new_topic()
    response = http.post(f"/v1/topics/{topic}", json={"value": "alone"})
    assert response.json() == {"messages": [{"partition": 0, "offset": 0}]}
    assert response.headers["content-type"] == "application/json"
    assert [one["value"] for one in read(topic)["messages"]] == ["alone"]


def test_a_body_of_another_type_is_the_value_itself(
    http: httpx.Client, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    raw = {"content-type": "application/octet-stream"}
    placed = http.post(f"/v1/topics/{topic}?key=grün&partition=2", content=b"\0\xff", headers=raw).json()
    assert placed == {"messages": [{"partition": 2, "offset": 0}]}
    proto = {"content-type": "application/x-protobuf; v=1"}
    assert http.post(f"/v1/topics/{topic}?partition=2", content=b"", headers=proto).status_code == 200
    first, second = consumed(bootstrap, topic, 2, partition=2)
    assert (first.key(), first.value()) == ("grün".encode(), b"\0\xff")
    assert (second.key(), second.value()) == (None, b"")


def test_keys_go_where_other_clients_put_them(
    bootstrap: str, new_topic: Callable[..., str], post: Post, read: Read
) -> None:
    from aiokafka.partitioner import murmur2

    topic = new_topic(7)
    keys = [f"key-{n}" for n in range(50)]
    placed = post(topic, *({"key": key, "value": key} for key in keys))
    assert [one["partition"] for one in placed] == [(murmur2(key.encode()) & 0x7FFFFFFF) % 7 for key in keys]
    for key, one in zip(keys, placed, strict=True):
        page = read(topic, partition=one["partition"], start=one["offset"], max=1)
        assert page["messages"][0]["key"] == key


def test_messages_without_a_key_of_one_request_share_a_partition(new_topic: Callable[..., str], post: Post) -> None:
    topic = new_topic(50)
    placed = post(topic, *({"value": str(n)} for n in range(20)))
    assert [one["offset"] for one in placed] == list(range(20))
    assert len({one["partition"] for one in placed}) == 1
    assert len({post(topic, {"value": "x"})[0]["partition"] for _ in range(20)}) > 1


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(values, values, st.lists(st.tuples(texts, values), max_size=2)), min_size=1, max_size=5))
def test_what_is_read_can_be_written_again_unchanged(
    http: httpx.Client, shared_topic: str, messages: list[tuple[Any, Any, list[tuple[str, Any]]]]
) -> None:
    from tailrace.util.json_messages import Row, to_object

    rows = [Row(as_bytes(key), as_bytes(value), headers_of(headers), 5, 0) for key, value, headers in messages]
    written = http.post(f"/v1/topics/{shared_topic}", json={"messages": [to_object(row) for row in rows]})
    start = written.json()["messages"][0]["offset"]
    page = http.get(f"/v1/topics/{shared_topic}/messages", params={"from": start}).json()
    again = http.post(f"/v1/topics/{shared_topic}", json={"messages": page["messages"]})
    offset = again.json()["messages"][0]["offset"]
    other = http.get(f"/v1/topics/{shared_topic}/messages", params={"from": offset}).json()
    assert [one | {"offset": 0} for one in other["messages"]] == [one | {"offset": 0} for one in page["messages"]]
    assert [one | {"offset": 0} for one in page["messages"]] == [to_object(row._replace(offset=0)) for row in rows]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(jsons.filter(lambda value: value is not None and not isinstance(value, str)))
def test_json_survives_as_a_value(http: httpx.Client, shared_topic: str, value: Any) -> None:
    placed = http.post(f"/v1/topics/{shared_topic}", json={"value": value}).json()["messages"]
    page = http.get(f"/v1/topics/{shared_topic}/messages", params={"from": placed[0]["offset"]}).json()
    assert json.loads(page["messages"][0]["value"]) == value


def as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def headers_of(headers: list[tuple[str, Any]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, as_bytes(value)) for name, value in headers)


@pytest.fixture
def shared_topic(new_topic: Callable[..., str]) -> str:
    return new_topic()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "no object"),
        (b"1e999", "no object"),
        (b"NaN", "no number"),
        (b'{"value": NaN}', "no number"),
        (b'{"value": ' + b"9" * 5000 + b"}", "no JSON"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"messages": []}', "a list with messages"),
        (b'{"messages": {}}', "a list with messages"),
        (b'{"messages": [{"value": "a"}], "value": "b"}', "all there is"),
        (b'{"messages": [{"value": "a"}, {}]}', 'message 1: it has no "value"'),
        (b'{"value": "a", "kye": "b"}', "'kye', which is unknown"),
        (b'{"value": "\\ud800"}', "lone surrogate"),
        (b'{"value": {"a": "\\ud800"}}', "lone surrogate"),
        (b'{"value": "a", "partition": -1}', "whole number"),
        (b'{"value": "a", "partition": 0.5}', "whole number"),
        (b'{"value": "a", "timestamp": 9223372036854775808}', "whole number"),
    ],
)
def test_a_body_that_is_no_message_is_refused_in_words(http: httpx.Client, body: bytes, why: str) -> None:
    response = http.post("/v1/topics/never", content=body, headers={"content-type": "application/json; charset=utf-8"})
    assert problem_of(response) == (400, "bad-request")
    assert why in response.json()["detail"]


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "Text/Plain; charset=utf-8", "application/x-www-form-urlencoded",
                     "multipart/form-data; boundary=x"],
)  # fmt: skip
def test_types_that_any_web_page_may_send_are_refused(http: httpx.Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    response = http.post("/v1/topics/never", content=b'{"value": "x"}', headers=headers)
    assert problem_of(response) == (415, "unsupported-media-type")
    assert "application/octet-stream" in response.json()["detail"]


def test_mistakes_in_the_address_are_refused(http: httpx.Client, new_topic: Callable[..., str]) -> None:
    one = {"value": "x"}
    for name in ("a%20b", "gr%C3%BCn", "%2E%2E", "x" * 250, "a%0Ab"):
        assert problem_of(http.post(f"/v1/topics/{name}", json=one))[0] in (400, 404)
    topic = new_topic()
    assert problem_of(http.post(f"/v1/topics/{topic}?key=a", json=one)) == (400, "bad-request")
    assert problem_of(http.post(f"/v1/topics/{topic}?keys=a", json=one)) == (400, "bad-request")
    assert problem_of(http.post(f"/v1/topics/{topic}", json=one | {"partition": 1})) == (404, "topic-not-found")
    assert problem_of(http.post("/v1/topics/__tailrace_lag", json=one)) == (403, "forbidden")
    assert problem_of(http.put(f"/v1/topics/{topic}", json=one)) == (405, "method-not-allowed")
    assert {"GET", "POST"} <= set(http.put(f"/v1/topics/{topic}").headers["allow"].split(", "))


def test_a_topic_is_created_where_brokers_create_topics(http: httpx.Client, unused_name: str, post: Post) -> None:
    assert problem_of(http.get(f"/v1/topics/{unused_name}/messages")) == (404, "topic-not-found")
    assert post(unused_name, {"value": "x"}) == [{"partition": 0, "offset": 0}]


@pytest.fixture
def unused_name() -> str:
    import secrets

    return f"unused-{secrets.token_hex(5)}"


def test_a_message_that_is_too_large_is_refused_and_takes_no_other_with_it(
    http: httpx.Client, new_topic: Callable[..., str], read: Read
) -> None:
    topic = new_topic(max_message_bytes="2000")
    sizes = [10, 5000, 10, 10, 5000, 10]
    found: dict[int, httpx.Response] = {}

    def send(number: int) -> None:
        found[number] = http.post(f"/v1/topics/{topic}", json={"value": f"{number}" * sizes[number]})

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(sizes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number].status_code for number in range(6)] == [200, 413, 200, 200, 413, 200]
    assert problem_of(found[1]) == (413, "too-large")
    assert {one["value"][0] for one in read(topic)["messages"]} == {"0", "2", "3", "5"}


def test_a_compacted_topic_takes_no_message_without_a_key(
    http: httpx.Client, new_topic: Callable[..., str], post: Post
) -> None:
    topic = new_topic(cleanup_policy="compact")
    assert problem_of(http.post(f"/v1/topics/{topic}", json={"value": "x"})) == (400, "bad-request")
    assert post(topic, {"key": "k", "value": "x"})[0]["partition"] == 0


def test_a_request_of_many_and_long_messages_is_written_in_order(
    new_topic: Callable[..., str], post: Post, read: Read
) -> None:
    topic = new_topic()
    messages = [{"value": f"{n:05}" + "x" * 700} for n in range(3000)]  # more than a batch takes
    assert [one["offset"] for one in post(topic, *messages)] == list(range(3000))
    start, found = 0, []
    while (page := read(topic, start=start, max=1000))["messages"]:
        found += [one["value"][:5] for one in page["messages"]]
        start = page["next_offset"]
    assert found == [f"{n:05}" for n in range(3000)]


def test_concurrent_requests_are_all_written_once(
    gateway: RunningGateway, new_topic: Callable[..., str], read: Read
) -> None:
    topic = new_topic(2)

    def work(worker: int) -> None:
        with httpx.Client(base_url=gateway.url, timeout=40) as client:
            for n in range(20):
                message = {"value": f"{worker}/{n}", "partition": n % 2}
                assert client.post(f"/v1/topics/{topic}", json=message).status_code == 200

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [one["value"] for partition in (0, 1) for one in read(topic, partition=partition, max=1000)["messages"]]
    assert sorted(found) == sorted(f"{worker}/{n}" for worker in range(10) for n in range(20))


def test_bodies_are_bounded(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with (
        RunningGateway(bootstrap, {"tailrace.http.body.max.bytes": "2000"}) as small,
        httpx.Client(base_url=small.url, timeout=40) as client,
    ):
        raw = {"content-type": "application/octet-stream"}
        assert client.post(f"/v1/topics/{topic}", content=b"x" * 2000, headers=raw).status_code == 200
        assert problem_of(client.post(f"/v1/topics/{topic}", content=b"x" * 2001, headers=raw)) == (413, "too-large")

        def parts() -> Any:
            yield from [b"x" * 1000] * 3

        assert problem_of(client.post(f"/v1/topics/{topic}", content=parts(), headers=raw)) == (413, "too-large")
        assert client.post(f"/v1/topics/{topic}", content=b"y", headers=raw).json()["messages"][0]["offset"] == 1
        assert small.on_loop(lambda: small.gateway.metrics.page()).count("tailrace_http_bodies_bytes 0\n") == 1


def test_a_request_may_have_only_so_many_messages(http: httpx.Client) -> None:
    response = http.post("/v1/topics/never", json={"messages": [{"value": None}] * 10_001})
    assert problem_of(response) == (413, "too-large")
