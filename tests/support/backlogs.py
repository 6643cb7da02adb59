"""What tests of the backlog have in common: policies, records, commits, deletions, and entries of the loss ledger."""

from typing import Any

from brokers import LocalBroker

from tailrace.broker.core.topics import LOSSES_TOPIC
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.broker.metadata.config_changes import Operation
from tailrace.facts import losses
from tailrace.facts.losses import Loss
from tailrace.log.retention import Reason
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

RECORDS_OF_A_SEGMENT_EACH: dict[str, Any] = {"segment_ms": "1"}


def configured(policy: str = "hold", groups: str = "billing", **limits: Any) -> dict[str, Any]:
    named = {f"tailrace_backlog_{name.replace('_', '.')}": str(value) for name, value in limits.items()}
    return {"tailrace_backlog_policy": policy, "tailrace_backlog_groups": groups, **named}


def fill(broker: LocalBroker, count: int, topic: str = "orders") -> None:
    for number in range(count):
        assert broker.produce(b"%d" % number, topic=topic).error_code == 0
        broker.now_ms += 1000


def commit(broker: LocalBroker, group: str, offset: int, partition: int = 0, *, topic: str = "orders") -> None:
    groups = broker.broker.groups
    groups.tell_time(broker.now_ms, broker.steady_ms)
    groups.find_or_make(group)
    value = OffsetCommitValue(offset=offset, commit_timestamp=broker.now_ms)
    groups.commit(group, [(topic, partition, value)])
    broker.run_jobs()


def alter(broker: LocalBroker, topic: str = "orders", **configs: str | None) -> None:
    changes = [
        AlterableConfig(
            name=name.replace("_", "."),
            config_operation=Operation.SET if value is not None else Operation.DELETE,
            value=value,
        )
        for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=changes)
    (answer,) = broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def noted(broker: LocalBroker) -> list[Loss]:
    broker.run_jobs()
    if broker.broker.topic(LOSSES_TOPIC) is None:
        return []
    return [losses.decode(value) for value in broker.values(LOSSES_TOPIC)]


def short(found: list[Loss]) -> list[tuple[str, str, int, int]]:
    return [(loss.kind.value, loss.group, loss.first, loss.last) for loss in found]


def delete(broker: LocalBroker, before: int, reason: Reason = Reason.AGE, topic: str = "orders") -> None:
    broker.broker.retention.delete(broker.partition(topic), before, reason, broker.now_ms)
