"""Producers that try again what they do not know was done: each message is kept once, in order.

Between them and the broker stands a proxy that loses requests, and answers that the broker has given.
"""

from collections.abc import Callable

import pytest
from compat.brokers import BrokerProcess
from compat.clients.confluent import ConfluentClient
from compat.contract import Client, each_client_that
from compat.numbered_messages import check_each_once_in_order, interrupted, numbered, paced
from compat.proxy import FETCH, PRODUCE, LosingProxy, Loss

COUNT = 400
LOSSES = [None, Loss.ANSWER, None, None, Loss.REQUEST, Loss.ANSWER, None, Loss.ANSWER, Loss.ANSWER, None, Loss.REQUEST]


@pytest.fixture
def broker(proxied_broker: BrokerProcess) -> BrokerProcess:
    return proxied_broker


@each_client_that("is idempotent")
def test_each_message_is_kept_once_in_order_whatever_is_lost(
    client: Client, reference: ConfluentClient, proxy: LosingProxy, topic: str
) -> None:
    proxy.lose(LOSSES)
    client.produce(topic, paced(COUNT), idempotent=True)
    assert proxy.lost == [loss for loss in LOSSES if loss]
    check_each_once_in_order(reference, topic, COUNT)


def test_without_idempotence_messages_are_kept_twice(
    reference: ConfluentClient, proxy: LosingProxy, topic: str
) -> None:
    """So that once means something."""
    proxy.lose(LOSSES)
    reference.produce(topic, paced(COUNT))
    assert (reference.offset(topic, "latest") or 0) > COUNT


@each_client_that("is idempotent")
@pytest.mark.parametrize("end", [BrokerProcess.restart, BrokerProcess.kill_and_start], ids=["restart", "kill"])
def test_that_holds_when_the_broker_ends_in_between(
    client: Client,
    reference: ConfluentClient,
    proxy: LosingProxy,
    broker: BrokerProcess,
    topic: str,
    end: Callable[[BrokerProcess], None],
) -> None:
    proxy.lose([*LOSSES, *([None] * 20), Loss.ANSWER, Loss.ANSWER])
    client.produce(topic, interrupted(COUNT, COUNT // 4, lambda: end(broker)), idempotent=True)
    assert len(proxy.lost) > 2
    check_each_once_in_order(reference, topic, COUNT)


@each_client_that("is idempotent")
@pytest.mark.parametrize("end", [BrokerProcess.restart, BrokerProcess.kill_and_start], ids=["restart", "kill"])
def test_what_was_done_before_a_restart_is_known_after_it(
    client: Client,
    reference: ConfluentClient,
    proxy: LosingProxy,
    broker: BrokerProcess,
    topic: str,
    end: Callable[[BrokerProcess], None],
) -> None:
    """The producer has several requests under way, all of them done, and asks again when there is another process."""
    proxy.lose([None, Loss.ANSWER])
    proxy.on_loss = lambda: end(broker)
    client.produce(topic, numbered(200), idempotent=True)
    assert proxy.lost == [Loss.ANSWER]
    check_each_once_in_order(reference, topic, 200)


@each_client_that("consumes")
def test_a_reader_at_the_end_waits_and_does_not_ask_again_and_again(
    client: Client, reference: ConfluentClient, proxy: LosingProxy, topic: str
) -> None:
    reference.produce(topic, numbered(5))
    with client.consumer(topic, wait_ms=500) as consumer:
        assert len(consumer.take(5)) == 5
        before = proxy.requests[FETCH]
        assert consumer.take(1, within=2) == []
        assert proxy.requests[FETCH] - before <= 8
    assert proxy.requests[PRODUCE] >= 1
