import contextlib
import gc
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess, against_kafka, new_broker
from compat.clients.aiokafka import AiokafkaClient
from compat.clients.confluent import ConfluentClient
from compat.clients.java import JavaClient
from compat.clients.kafka_python import KafkaPythonClient
from compat.clients.kafkajs import KafkajsClient
from compat.clients.kcat import KcatClient
from compat.contract import Client, leaves_sockets
from compat.groups import SETTINGS
from compat.proxy import LosingProxy
from compat.tools import Tools

CLIENTS = {
    "confluent": ConfluentClient,
    "aiokafka": AiokafkaClient,
    "kafka-python": KafkaPythonClient,
    "kcat": KcatClient,
    "java": JavaClient,
    "kafkajs": KafkajsClient,
}
KAFKA_SECONDS = 180  # a test in which Kafka starts twice, on a busy machine
KAFKA_REMEMBERS_ONE = "over a clean restart, Kafka remembers one batch of each producer, and we five"
KAFKA_COUNTS_ALL = "the records in flight that a group may have are, in Kafka, also those that are finished"
KAFKA_FAILS = {  # by name of test: what Kafka itself does not do
    "test_that_holds_when_the_broker_ends_in_between[restart-java]": KAFKA_REMEMBERS_ONE,
    "test_what_was_done_before_a_restart_is_known_after_it[restart-java]": KAFKA_REMEMBERS_ONE,
    "test_a_producer_and_a_consumer_go_at_the_rates_that_they_may": "Kafka's consumer gets two thirds of what it may",
    "test_other_clients_are_served_while_keys_are_checked_and_the_order_holds": "in Kafka, they wait longer",
    "test_deleted_records_stay_deleted[kill]": "Kafka writes down once a minute where its logs start",
    "test_a_message_that_takes_long_holds_up_no_other[confluent]": KAFKA_COUNTS_ALL,
    "test_a_message_that_takes_long_holds_up_no_other[java]": KAFKA_COUNTS_ALL,
    "test_a_transaction_outlives_the_broker[abort-kafka-python]": "killed at once, Kafka commits what it has aborted",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if against_kafka():
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                if item.get_closest_marker("timeout") is None:
                    item.add_marker(pytest.mark.timeout(KAFKA_SECONDS))
                if reason := KAFKA_FAILS.get(item.name):
                    item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


@pytest.fixture(autouse=True)
def nothing_left_for_another_test_to_find(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sockets that a client leaves to the garbage are found while the test lasts that ignores them."""
    yield
    if leaves_sockets.mark in request.node.iter_markers():
        gc.collect()


@contextlib.contextmanager
def running(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    with contextlib.closing(broker):
        broker.start()
        yield broker


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running(new_broker(tmp_path_factory.mktemp("shared") / "broker")) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> BrokerProcess:
    """The one that clients talk to: shared by all tests, unless a module has another fixture of that name."""
    return shared_broker


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for tests of groups to share: they need not wait long for members that come or go."""
    with running(new_broker(tmp_path_factory.mktemp("groups") / "broker", settings=SETTINGS)) as broker:
        yield broker


@pytest.fixture(scope="session")
def tools() -> Iterator[Tools]:
    with contextlib.closing(Tools()) as tools:
        yield tools


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A test's own, to be stopped and killed."""
    with running(new_broker(tmp_path / "broker")) as broker:
        yield broker


@pytest.fixture
def proxy() -> Iterator[LosingProxy]:
    with contextlib.closing(LosingProxy()) as proxy:
        yield proxy


@pytest.fixture
def proxied_broker(tmp_path: Path, proxy: LosingProxy) -> Iterator[BrokerProcess]:
    """A test's own, that clients reach through the proxy and in no other way."""
    broker = new_broker(tmp_path / "broker", advertised=proxy.port)
    proxy.broker_port = broker.port
    with running(broker):
        yield broker


@pytest.fixture
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Client]:
    """One of the clients; `each_client_that` says which."""
    with contextlib.closing(CLIENTS[request.param](broker.bootstrap)) as client:
        yield client


@pytest.fixture
def reference(broker: BrokerProcess) -> Iterator[ConfluentClient]:
    """The client that prepares and checks."""
    with contextlib.closing(ConfluentClient(broker.bootstrap)) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a topic that does not exist."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:150] + secrets.token_hex(4)


@pytest.fixture
def topic(reference: ConfluentClient, name: str) -> str:
    """An empty topic of one partition."""
    reference.create_topic(name)
    return name
