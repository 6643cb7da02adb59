"""Each config of a backlog policy takes effect: `tailrace.backlog.policy`, `tailrace.backlog.groups`,
`tailrace.backlog.bytes`, `tailrace.backlog.ms` and `tailrace.backlog.expiry.ms`.
"""

from pathlib import Path
from typing import Any

import pytest
from backlogs import commit
from brokers import LocalBroker, a_batch, produce_request

from tailrace.protocol.errors import ErrorCode

OTHER = {"tailrace.backlog.policy": "reject", "tailrace.backlog.groups": "billing", "tailrace.backlog.bytes": "1000"}


def is_refused(path: Path, configs: dict[str, Any]) -> bool:
    """Whether a producer is refused when group billing has read nothing of 1,200 bytes in 12 seconds, and audit all."""
    with LocalBroker(path) as broker:
        broker.create_topic(**{name.replace(".", "_"): value for name, value in configs.items()})
        commit(broker, "billing", 0)
        for _ in range(12):
            broker.ask(produce_request(a_batch(bytes(32), now_ms=broker.now_ms), acks=0), 12)
            broker.now_ms += 1000
        commit(broker, "audit", 12)
        return bool(broker.produce(b"x").error_code == ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("tailrace.backlog.policy", "hold", False),
        ("tailrace.backlog.policy", "reject", True),
        ("tailrace.backlog.policy", "backpressure", True),
        ("tailrace.backlog.groups", "audit", False),
        ("tailrace.backlog.groups", "audit,billing", True),
        ("tailrace.backlog.bytes", "100000", False),
        ("tailrace.backlog.bytes", "500", True),
        ("tailrace.backlog.ms", "10000", True),
        ("tailrace.backlog.ms", "100000", False),
        ("tailrace.backlog.expiry.ms", "1000", False),
        ("tailrace.backlog.expiry.ms", "100000", True),
    ],
)
def test_each_config_takes_effect(tmp_path: Path, name: str, value: str, refused: bool) -> None:
    beside = OTHER | {"tailrace.backlog.bytes": "-1"} if name == "tailrace.backlog.ms" else OTHER
    assert is_refused(tmp_path, beside | {name: value}) is refused
