"""GET /v1/topics/{topic}/messages: pages from any position, waits, and transactions."""

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from gateway.conftest import problem_of
from gateways import RunningGateway
from waits import until

Post = Callable[..., list[dict[str, int]]]
Read = Callable[..., dict[str, Any]]
NewTopic = Callable[..., str]


def values(page: dict[str, Any]) -> list[str]:
    return [one["value"] for one in page["messages"]]


@pytest.fixture
def ten(new_topic: NewTopic, post: Post) -> str:
    """A topic with the messages 0 to 9, a second apart."""
    topic = new_topic()
    post(topic, *({"value": str(n), "timestamp": 1_794_744_000_000 + 1000 * n} for n in range(10)))
    return topic


def test_a_page_begins_where_it_should(ten: str, read: Read) -> None:
    assert values(read(ten)) == [str(n) for n in range(10)]
    page = read(ten, start=3, max=4)
    assert (values(page), page["next_offset"], page["end"]) == (["3", "4", "5", "6"], 7, 10)
    page = read(ten, start=7)
    assert (values(page), page["next_offset"], page["end"]) == (["7", "8", "9"], 10, 10)
    assert read(ten, start=10) == {"messages": [], "next_offset": 10, "end": 10}
    assert read(ten, start="latest") == {"messages": [], "next_offset": 10, "end": 10}
    assert values(read(ten, start="earliest", max=1)) == ["0"]


def test_a_page_begins_at_a_time(ten: str, read: Read) -> None:
    assert values(read(ten, start="2026-11-15T11:59"))[0] == "0"
    assert values(read(ten, start="2026-11-15T12:00:04.500Z")) == ["5", "6", "7", "8", "9"]
    assert values(read(ten, start="2026-11-15T13:00:09+01:00")) == ["9"]
    assert read(ten, start="2099-01-01")["next_offset"] == 10


@pytest.mark.parametrize(
    "start", ["", "soon", "-5", "1.5", "@3", "9" * 30, "2026-13-01", "x" * 100, "9223372036854775808"]
)
def test_what_is_no_position_is_refused(http: httpx.Client, ten: str, start: str) -> None:
    response = http.get(f"/v1/topics/{ten}/messages", params={"from": start})
    assert problem_of(response) == (400, "bad-request")


@pytest.mark.parametrize(
    "query",
    ["partition=-1", "partition=x", "max=0", "max=1001", "wait_seconds=61", "wait_seconds=-1", "wait_seconds=1.5",
     "isolation=none", "form=3", "max=1&max=2", "partition=٣"],
)  # fmt: skip
def test_wrong_parameters_are_refused(http: httpx.Client, ten: str, query: str) -> None:
    response = http.get(f"/v1/topics/{ten}/messages?{query}")
    assert problem_of(response) == (400, "bad-request")
    assert query.partition("=")[0] in response.json()["detail"]


def test_what_is_not_there_is_told(http: httpx.Client, ten: str, read: Read, admin: Any) -> None:
    assert problem_of(http.get("/v1/topics/never-there/messages")) == (404, "topic-not-found")
    assert problem_of(http.get(f"/v1/topics/{ten}/messages?partition=1")) == (404, "topic-not-found")
    response = http.get(f"/v1/topics/{ten}/messages?from=11")
    assert problem_of(response) == (416, "offset-out-of-range")
    assert (response.json()["earliest"], response.json()["end"]) == (0, 10)
    from confluent_kafka import TopicPartition

    for future in admin.delete_records([TopicPartition(ten, 0, 4)]).values():
        future.result(20)
    response = http.get(f"/v1/topics/{ten}/messages?from=3")
    assert problem_of(response) == (416, "offset-out-of-range")
    assert (response.json()["earliest"], response.json()["end"]) == (4, 10)
    assert values(read(ten)) == ["4", "5", "6", "7", "8", "9"]


def test_a_wait_ends_with_the_next_message(ten: str, read: Read, post: Post) -> None:
    pages: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: pages.append(read(ten, start=10, wait_seconds=30)))
    thread.start()
    time.sleep(0.5)
    assert not pages
    post(ten, {"value": "10"})
    thread.join()
    assert [values(page) for page in pages] == [["10"]]


def test_a_wait_for_nothing_ends_with_its_time(ten: str, read: Read) -> None:
    begun = time.monotonic()
    page = read(ten, start="latest", wait_seconds=1)
    assert time.monotonic() - begun >= 0.99
    assert page == {"messages": [], "next_offset": 10, "end": 10}
    assert values(read(ten, start=9, wait_seconds=60)) == ["9"]


def test_many_wait_for_many_partitions_and_share_a_few_fetches(
    gateway: RunningGateway, new_topic: NewTopic, post: Post
) -> None:
    topics = [new_topic(4) for _ in range(3)]
    found: dict[tuple[str, int, int], list[str]] = {}

    def wait(topic: str, partition: int, number: int) -> None:
        parameters = {"partition": str(partition), "wait_seconds": "40"}
        response = httpx.get(f"{gateway.url}/v1/topics/{topic}/messages", params=parameters, timeout=50)
        found[topic, partition, number] = values(response.json())

    places = [(topic, partition, number) for topic in topics for partition in range(4) for number in range(4)]
    threads = [threading.Thread(target=wait, args=place) for place in places]
    for thread in threads:
        thread.start()
    until(lambda: gateway.on_loop(lambda: gateway.gateway._waits.waiting) == len(places), 30)
    from tailrace.client.options import Isolation
    from tailrace.gateway.kafka.tail import WATCHES_MAX

    tail = gateway.on_loop(lambda: gateway.gateway.kafka.view(Isolation.READ_COMMITTED).tail)
    assert tail.watches <= WATCHES_MAX
    for topic in topics:
        post(topic, *({"value": f"{topic}/{partition}", "partition": partition} for partition in range(4)))
    for thread in threads:
        thread.join()
    assert found == {place: [f"{place[0]}/{place[1]}"] for place in places}
    assert gateway.on_loop(lambda: gateway.gateway._waits.waiting) == 0


def test_waits_are_bounded(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with RunningGateway(bootstrap, {"tailrace.http.waiting.max": "1"}) as small:
        url = f"{small.url}/v1/topics/{topic}/messages?wait_seconds=40"
        with httpx.Client(timeout=50) as client, httpx.Client(timeout=50) as second:
            thread = threading.Thread(target=lambda: second.get(url))
            thread.start()
            until(lambda: small.on_loop(lambda: small.gateway._waits.waiting) == 1, 20)
            response = client.get(url)
            assert problem_of(response) == (429, "too-many-requests")
            assert response.headers["retry-after"]
            assert client.get(url.partition("?")[0]).status_code == 200
            client.post(f"{small.url}/v1/topics/{topic}", json={"value": "x"})
            thread.join()


def test_a_client_that_goes_away_leaves_no_wait_behind(gateway: RunningGateway, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{gateway.url}/v1/topics/{topic}/messages?wait_seconds=60", timeout=1.5)
    until(lambda: gateway.on_loop(lambda: gateway.gateway._waits.waiting) == 0, 20)


def test_waits_end_when_the_gateway_stops(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    pages: list[dict[str, Any]] = []
    with RunningGateway(bootstrap) as stopped:
        url = f"{stopped.url}/v1/topics/{topic}/messages?wait_seconds=60"
        thread = threading.Thread(target=lambda: pages.append(httpx.get(url, timeout=50).json()))
        thread.start()
        until(lambda: stopped.on_loop(lambda: stopped.gateway._waits.waiting) == 1, 20)
    thread.join()
    assert pages == [{"messages": [], "next_offset": 0, "end": 0}]


def test_messages_of_open_and_aborted_transactions_are_left_out_unless_asked_for(
    bootstrap: str, new_topic: NewTopic, read: Read
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{topic}"})
    producer.init_transactions(30)
    for value, ends in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(20)
        if ends:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, "d")
    producer.flush(20)
    until(lambda: read(topic)["end"] == 6, 20)
    page = read(topic)
    assert (values(page), page["next_offset"], page["end"]) == (["a", "c"], 6, 6)
    assert values(read(topic, isolation="uncommitted")) == ["a", "b", "c", "d"]
    assert read(topic, isolation="uncommitted")["end"] == 7

    pages: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: pages.append(read(topic, start=6, wait_seconds=30)))
    thread.start()
    time.sleep(0.5)
    assert not pages
    producer.commit_transaction(30)
    thread.join()
    assert [values(one) for one in pages] == [["d"]]


def test_a_wait_that_finds_nothing_but_an_aborted_transaction_goes_on(
    bootstrap: str, new_topic: NewTopic, read: Read, post: Post
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{topic}"})
    producer.init_transactions(30)
    pages: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: pages.append(read(topic, wait_seconds=40)))
    thread.start()
    producer.begin_transaction()
    producer.produce(topic, "aborted")
    producer.flush(20)
    producer.abort_transaction(30)
    time.sleep(0.5)
    post(topic, {"value": "written"})
    thread.join()
    assert [values(one) for one in pages] == [["written"]]


def test_pages_are_bounded_in_bytes(new_topic: NewTopic, post: Post, read: Read) -> None:
    topic = new_topic(max_message_bytes="8000000")
    post(topic, *({"value": "x" * 300_000} for _ in range(10)))
    post(topic, {"value": "y" * 3_000_000})
    page = read(topic)
    assert 1 <= len(page["messages"]) < 10
    seen = len(page["messages"])
    while (page := read(topic, start=page["next_offset"]))["messages"]:
        seen += len(page["messages"])
    assert seen == 11


def test_compressed_batches_and_odd_headers_are_read(bootstrap: str, new_topic: NewTopic, read: Read) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "linger.ms": 50})
    for n in range(100):
        producer.produce(topic, f"{n}" * 50, headers=[("h", b"\xff"), ("h", None)])
    assert producer.flush(20) == 0
    page = read(topic, start=42, max=1)
    (message,) = page["messages"]
    assert message["value"] == "42" * 50
    assert message["headers"] == [["h", {"base64": "/w=="}], ["h", None]]
