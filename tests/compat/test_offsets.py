"""Where a log begins and ends, and what it held at a time."""

import pytest
from compat.clients.confluent import ConfluentClient
from compat.contract import AtTime, Client, Message, each_client_that

LONG_AGO = 1_700_000_000_000


@pytest.fixture
def filled(reference: ConfluentClient, topic: str) -> str:
    """Forty messages in two batches, ten milliseconds apart, but for the 25th, which is the newest by far."""
    messages = [Message(b"value", timestamp=LONG_AGO + 10 * n) for n in range(40)]
    messages[25] = Message(b"value", timestamp=LONG_AGO + 5000)
    reference.produce(topic, messages[:20])
    reference.produce(topic, messages[20:])
    return topic


@each_client_that("finds offsets")
def test_an_empty_log_begins_where_it_ends(client: Client, topic: str) -> None:
    assert client.offset(topic, "earliest") == 0
    assert client.offset(topic, "latest") == 0


@each_client_that("finds offsets")
def test_the_first_offset_and_the_next_are_told(client: Client, reference: ConfluentClient, filled: str) -> None:
    assert client.offset(filled, "earliest") == 0
    assert client.offset(filled, "latest") == 40
    reference.delete_records(filled, 15)
    assert client.offset(filled, "earliest") == 15
    assert client.offset(filled, "latest") == 40


@each_client_that("finds times")
def test_a_time_is_answered_with_the_first_message_of_that_time_or_later(client: Client, filled: str) -> None:
    asked = {0: 0, 11: 2, 240: 24, 241: 25}
    assert {time: client.offset(filled, AtTime(LONG_AGO + time)) for time in asked} == asked


@each_client_that("finds times")
def test_a_time_after_all_messages_is_answered_with_none(client: Client, filled: str) -> None:
    assert client.offset(filled, AtTime(LONG_AGO + 5001)) is None


@each_client_that("finds times")
def test_a_time_is_answered_with_none_by_an_empty_log(client: Client, topic: str) -> None:
    assert client.offset(topic, AtTime(LONG_AGO)) is None


@each_client_that("finds times")
def test_a_time_is_answered_with_nothing_that_was_deleted(
    client: Client, reference: ConfluentClient, filled: str
) -> None:
    reference.delete_records(filled, 15)
    assert client.offset(filled, AtTime(LONG_AGO)) == 15


@each_client_that("finds the newest")
def test_the_newest_message_need_not_be_the_last(client: Client, filled: str) -> None:
    assert client.offset(filled, "newest") == 25


@each_client_that("finds the newest")
def test_an_empty_log_has_no_newest_message(client: Client, topic: str) -> None:
    assert client.offset(topic, "newest") is None
