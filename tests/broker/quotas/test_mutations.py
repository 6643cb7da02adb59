"""`controller_mutation_rate`: partitions created and deleted; refused in newer versions, waited for in older ones."""

from collections.abc import Iterator
from typing import Any

import pytest
from brokers import LocalBroker
from logs import DATA, memory_files

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

RATE = 2  # a second
WINDOW_S = 10  # of which may be used at once
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
CREATE, DELETE, ADD = "create", "delete", "add"
REFUSED_FROM = {CREATE: 6, DELETE: 5, ADD: 3}
each_request = pytest.mark.parametrize("what", [CREATE, DELETE, ADD])


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(DATA, files=memory_files()) as broker:
        for name in ("a", "b", "c"):
            broker.create_topic(name, 5)
        yield broker


def limit(broker: LocalBroker) -> None:
    broker.broker.metadata.quotas.set((("client-id", "test"),), "controller_mutation_rate", RATE)


def request(what: str, names: str, version: int, **fields: Any) -> Any:
    """Five partitions of each topic."""
    if what == CREATE:
        topics = [CreatableTopic(name=f"new-{name}", num_partitions=5, replication_factor=1) for name in names]
        return CreateTopicsRequest(topics=topics, **fields)
    if what == DELETE:
        if version < 6:
            return DeleteTopicsRequest(topic_names=list(names))
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    wanted = [CreatePartitionsTopic(name=name, count=10, assignments=None) for name in names]
    return CreatePartitionsRequest(topics=wanted, **fields)


def ask(broker: LocalBroker, what: str, names: str, version: int, **fields: Any) -> tuple[list[int], int]:
    """The errors, and for how long the client is to wait."""
    answer = broker.ask(request(what, names, version, **fields), version)
    results = {CREATE: "topics", DELETE: "responses", ADD: "results"}[what]
    return [one.error_code for one in getattr(answer, results)], answer.throttle_time_ms


def use_up(broker: LocalBroker) -> None:
    """All but one of what may be done at once."""
    limit(broker)
    used = CreatableTopic(name="used", num_partitions=RATE * WINDOW_S - 1, replication_factor=1)
    broker.ask(CreateTopicsRequest(topics=[used]), 7)


@each_request
def test_newer_versions_are_refused_while_something_is_owed(broker: LocalBroker, what: str) -> None:
    use_up(broker)
    version = REFUSED_FROM[what]
    assert ask(broker, what, "a", version) == ([0], 0), "the one that uses it up is done"
    assert ask(broker, what, "bc", version) == ([EXCEEDED, EXCEEDED], 2000), "four partitions are owed"
    assert ask(broker, what, "b", version) == ([EXCEEDED], 2000), "who is refused owes no more"
    broker.tick(2000)
    assert ask(broker, what, "bc", version) == ([0, EXCEEDED], 2500)


@each_request
def test_older_versions_are_served_and_told_to_wait(broker: LocalBroker, what: str) -> None:
    use_up(broker)
    version = REFUSED_FROM[what] - 1
    assert ask(broker, what, "a", version) == ([0], 2000)
    assert ask(broker, what, "bc", version) == ([0, 0], 7000)


@each_request
def test_what_is_refused_is_not_done(broker: LocalBroker, what: str) -> None:
    use_up(broker)
    ask(broker, what, "a", REFUSED_FROM[what])
    before = broker.broker.metadata.describe()
    ask(broker, what, "bc", REFUSED_FROM[what])
    assert broker.broker.metadata.describe() == before


@pytest.mark.parametrize("what", [CREATE, ADD])
def test_to_find_out_costs_nothing(broker: LocalBroker, what: str) -> None:
    use_up(broker)
    for _ in range(3):
        assert ask(broker, what, "abc", REFUSED_FROM[what], validate_only=True) == ([0, 0, 0], 0)


@each_request
def test_what_fails_costs_nothing(broker: LocalBroker, what: str) -> None:
    use_up(broker)
    broker.create_topic("new-x")
    for _ in range(3):
        (error,), wait_ms = ask(broker, what, "x" if what == CREATE else "?", REFUSED_FROM[what])
        assert error not in (0, EXCEEDED)
        assert wait_ms == 0


@each_request
def test_others_go_on(broker: LocalBroker, what: str) -> None:
    use_up(broker)
    ask(broker, what, "a", REFUSED_FROM[what])
    version = REFUSED_FROM[what]
    assert broker.ask(request(what, "b", version), version, client_id="another").throttle_time_ms == 0
