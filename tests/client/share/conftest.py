"""A broker with short locks, and share consumers on it: ours, or with `TAILRACE_COMPAT=kafka` Apache Kafka."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from client.conftest import options
from compat.brokers import BrokerProcess, new_broker
from queues import LOCK_MS, SHARE_SETTINGS

from tailrace.client.admin.configs import alter_group_configs
from tailrace.client.cluster.cluster import Cluster
from tailrace.client.share.consumer import ShareConsumer


@pytest.fixture(scope="session")
def share_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with contextlib.closing(new_broker(tmp_path_factory.mktemp("share") / "broker", settings=SHARE_SETTINGS)) as broker:
        broker.start()
        yield broker


@pytest.fixture(scope="session")
def bootstrap(share_broker: BrokerProcess) -> str:
    return share_broker.bootstrap


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A test's own, that can be killed."""
    with contextlib.closing(new_broker(tmp_path / "broker", settings=SHARE_SETTINGS)) as broker:
        broker.start()
        yield broker


@pytest.fixture
def group(cluster: Cluster) -> str:
    """A new group that begins at the start of its topics, with short locks."""
    return new_group(cluster)


def new_group(cluster: Cluster, **configs: str) -> str:
    name = f"group-{secrets.token_hex(4)}"
    given = {key.replace("_", "."): value for key, value in configs.items()}
    usual = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
    alter_group_configs(cluster, name, {**usual, **given})
    return name


Join = Callable[..., ShareConsumer]


@pytest.fixture
def join(bootstrap: str) -> Iterator[Join]:
    """Makes consumers, which are closed in the end."""
    with contextlib.ExitStack() as stack:

        def join(group: str, *topics: str, at: str = bootstrap, renews: bool = False) -> ShareConsumer:
            consumer = ShareConsumer(options(at), group, topics, renews=renews)
            stack.callback(consumer.close)
            return consumer

        yield join
