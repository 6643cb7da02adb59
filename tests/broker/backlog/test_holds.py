"""Holds: what a named group has not read stays, up to the limits; then the ledger says why it went."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from backlogs import RECORDS_OF_A_SEGMENT_EACH, alter, commit, configured, delete, noted, short
from brokers import LocalBroker
from group_requests import BILLING, NO_DELAY, Consumer, share

from tailrace.broker.backlog import named_groups
from tailrace.broker.backlog.holds import Verdict, judge
from tailrace.broker.backlog.named_groups import Standing
from tailrace.broker.configs.registry import BacklogConfig, BacklogPolicy
from tailrace.broker.core.topics import LOSSES_TOPIC
from tailrace.broker.groups.records import OffsetCommitValue
from tailrace.broker.metadata.config_changes import Operation
from tailrace.facts import losses
from tailrace.facts.losses import LossKind, LossReason
from tailrace.log.retention import Reason, SegmentFacts
from tailrace.monitor.figures.losses import join
from tailrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

DAY_MS = 86_400_000
EVERY_SECOND = {"log.retention.check.interval.ms": "1000"}
SHORT: dict[str, Any] = {"segment_ms": "1", "retention_ms": "5000"}  # a record per segment


@contextmanager
def broker_with(path: Path, configs: dict[str, str] | None = None, **topic: str) -> Iterator[LocalBroker]:
    with LocalBroker(path, {**EVERY_SECOND, **(configs or {})}) as broker:
        broker.create_topic(**{**SHORT, **topic})
        yield broker


def fill(broker: LocalBroker, count: int, size: int = 10) -> None:
    for _ in range(count):
        assert broker.produce(bytes(size)).error_code == 0
        broker.now_ms += 1000


def pass_time(broker: LocalBroker, ms: int = 20_000) -> None:
    broker.tick(0)
    broker.tick(ms)
    broker.tick(1000)
    broker.tick(1000)


def start(broker: LocalBroker) -> int:
    return int(broker.log().start_offset)


def cuts(broker: LocalBroker) -> list[tuple[int, int, str]]:
    """First, last and reason of each deletion, adjacent ones of a reason together."""
    broker.run_jobs()
    if broker.broker.topic(LOSSES_TOPIC) is None:
        return []
    found: list[tuple[int, int, str]] = []
    for loss in map(losses.decode, broker.values(LOSSES_TOPIC)):
        if loss.kind is LossKind.CUT and loss.reason is not None:
            if found and found[-1][2] == loss.reason and found[-1][1] + 1 == loss.first:
                found[-1] = (found[-1][0], loss.last, loss.reason.value)
            else:
                found.append((loss.first, loss.last, loss.reason.value))
    return found


# The decision


@pytest.mark.parametrize(
    ("standings", "bytes_behind", "limits", "verdict"),
    [
        ([], 0, {}, Verdict.FREE),
        ([Standing("a", 10, True)], 0, {}, Verdict.FREE),
        ([Standing("a", 9, True)], 0, {}, Verdict.HELD),
        ([Standing("a", 9, False)], 0, {}, Verdict.EXPIRED),
        ([Standing("a", 9, False), Standing("b", 3, True)], 0, {}, Verdict.HELD),
        ([Standing("a", 9, False), Standing("b", 10, True)], 0, {}, Verdict.EXPIRED),
        ([Standing("a", 9, True)], 99, {"bytes_max": 100}, Verdict.HELD),
        ([Standing("a", 9, True)], 100, {"bytes_max": 100}, Verdict.CAPPED),
        ([Standing("a", 9, True)], 0, {"age_ms_max": 1_000}, Verdict.HELD),
        ([Standing("a", 9, True)], 0, {"age_ms_max": 999}, Verdict.CAPPED),
        ([Standing("a", 9, True)], 0, {"age_ms_max": 999, "policy": BacklogPolicy.REJECT}, Verdict.HELD),
        ([Standing("a", 9, True)], 100, {"bytes_max": 100, "policy": BacklogPolicy.REJECT}, Verdict.CAPPED),
    ],
)
def test_verdicts(standings: list[Standing], bytes_behind: int, limits: dict[str, Any], verdict: Verdict) -> None:
    config = BacklogConfig(**{"policy": BacklogPolicy.HOLD, **limits})
    assert judge(SegmentFacts(0, 10, 50, 4_000), bytes_behind, standings, config, 5_000) is verdict


# Retention


def test_what_a_named_group_has_not_read_stays(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured()) as broker:
        fill(broker, 10)
        commit(broker, "billing", 4)
        commit(broker, "audit", 1)  # is not named
        pass_time(broker)
        assert start(broker) == 4
        assert cuts(broker) == [(0, 3, "age")]
        commit(broker, "billing", 10)
        pass_time(broker)
        assert start(broker) == 10


@pytest.mark.parametrize("policy", ["backpressure", "reject"])
def test_policies_that_limit_producers_hold_too(tmp_path: Path, policy: str) -> None:
    with broker_with(tmp_path, **configured(policy, ms=3_600_000)) as broker:
        fill(broker, 6)
        commit(broker, "billing", 2)
        pass_time(broker, 2 * 3_600_000)  # the age of what is unread is no reason to lose it
        assert start(broker) == 2


def test_the_slowest_of_several_groups_counts(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured(groups="billing,audit")) as broker:
        fill(broker, 6)
        commit(broker, "billing", 5)
        commit(broker, "audit", 2)
        pass_time(broker)
        assert start(broker) == 2


def test_from_the_limit_in_bytes_on_the_oldest_go(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured(bytes=4_000)) as broker:
        fill(broker, 10, 1_000)
        commit(broker, "billing", 2)
        pass_time(broker)
        assert start(broker) == 6, "with their headers, four batches have more than 4,000 bytes"
        assert cuts(broker) == [(0, 1, "age"), (2, 5, "hold_cap")]


def test_from_the_limit_in_time_on_the_oldest_go(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured(ms=60_000)) as broker:
        fill(broker, 4)
        commit(broker, "billing", 1)
        pass_time(broker, 30_000)
        assert start(broker) == 1
        pass_time(broker, 60_000)
        assert start(broker) == 4
        assert cuts(broker) == [(0, 0, "age"), (1, 3, "hold_cap")]


def test_clients_may_delete_what_is_held(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured()) as broker:
        fill(broker, 4)
        commit(broker, "billing", 1)
        wanted = [DeleteRecordsPartition(partition_index=0, offset=3)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=wanted)], timeout_ms=1000)
        (topic,) = broker.ask(request, 2).topics
        assert topic.partitions[0].low_watermark == 3
        assert cuts(broker) == [(0, 2, "delete_records")]


# Where a group stands


def test_a_group_that_never_committed_counts_from_the_end_when_it_was_named(tmp_path: Path) -> None:
    with broker_with(tmp_path) as broker:
        fill(broker, 3)
        alter(broker, **configured())
        fill(broker, 4)
        for again in (broker.restart, broker.kill):
            again()
            pass_time(broker)
            assert start(broker) == 3, "a restart does not move where it stands"
            fill(broker, 2)


def test_what_goes_before_a_named_group_has_ever_committed_is_its_loss(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(**RECORDS_OF_A_SEGMENT_EACH)
        fill(broker, 4)
        alter(broker, tailrace_backlog_policy="hold", tailrace_backlog_groups="billing")
        fill(broker, 6)
        for before in (3, 6, 7):
            delete(broker, before, Reason.HOLD_CAP)
        commit(broker, "billing", 9)
        delete(broker, 8)
        found = [loss for loss in noted(broker) if loss.group]
        assert short(found) == [("skipped", "billing", 4, 5), ("skipped", "billing", 6, 6)]
        (lost,) = join(found)
        assert (lost.first, lost.last, lost.records, lost.reason, lost.exact) == (4, 6, 3, LossReason.HOLD_CAP, True)


def test_a_partition_that_comes_later_counts_from_its_beginning(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured()) as broker:
        fill(broker, 3)
        broker.restart()
        pass_time(broker)
        assert start(broker) == 0


def test_a_group_named_anew_does_not_keep_its_old_place(tmp_path: Path) -> None:
    with broker_with(tmp_path) as broker:
        fill(broker, 2)
        alter(broker, **configured())
        fill(broker, 2)
        alter(broker, **configured(groups="audit"))
        fill(broker, 2)
        alter(broker, **configured(groups="audit,billing"))
        anchors = broker.broker.metadata.topics["orders"].anchors
        assert {group: found.offsets for group, found in anchors.items()} == {"audit": {0: 4}, "billing": {0: 6}}
        broker.restart()
        assert broker.broker.metadata.topics["orders"].anchors == anchors


def test_a_group_that_is_deleted_stands_at_the_end_of_that_moment(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured()) as broker:
        fill(broker, 4)
        commit(broker, "billing", 1)
        (deleted,) = broker.ask(DeleteGroupsRequest(groups_names=["billing"]), 2).results
        assert deleted.error_code == 0
        fill(broker, 3)
        broker.kill()
        pass_time(broker)
        assert start(broker) == 4


def test_a_commit_for_an_earlier_topic_of_that_name_is_none(tmp_path: Path) -> None:
    with broker_with(tmp_path) as broker:
        fill(broker, 4)
        value = OffsetCommitValue(offset=4, topic_id=broker.broker.metadata.topics["orders"].topic_id)
        broker.broker.groups.tell_time(broker.now_ms, broker.steady_ms)
        broker.broker.groups.find_or_make("billing")
        broker.broker.groups.commit("billing", [("orders", 0, value)])
        broker.delete_topic()
        broker.create_topic(**SHORT, **configured())
        fill(broker, 3)
        pass_time(broker)
        assert start(broker) == 0


# Expiry


def test_a_group_without_a_sign_of_life_holds_no_more(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured(expiry_ms=DAY_MS)) as broker:
        fill(broker, 4)
        commit(broker, "billing", 1)
        pass_time(broker, DAY_MS // 2)
        assert start(broker) == 1
        broker.restart()  # is no sign of the group
        pass_time(broker, DAY_MS // 2)
        assert start(broker) == 4
        assert cuts(broker) == [(0, 0, "age"), (1, 3, "hold_expired")]


def test_a_group_that_never_came_has_time_from_the_creation_of_its_topic_on(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, EVERY_SECOND) as broker:
        configs = {name.replace("_", "."): value for name, value in {**SHORT, **configured(expiry_ms=DAY_MS)}.items()}
        wanted = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        wanted.configs = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        (created,) = broker.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
        assert created.error_code == 0, created
        fill(broker, 3)
        pass_time(broker, DAY_MS // 2)
        assert start(broker) == 0
        broker.restart()
        pass_time(broker, DAY_MS // 2)
        assert start(broker) == 3
        assert cuts(broker) == [(0, 2, "hold_expired")]


def test_while_it_is_not_known_who_has_read_what_nothing_goes(tmp_path: Path) -> None:
    with broker_with(tmp_path, **configured("reject", bytes=100)) as broker:
        fill(broker, 1)
        groups = broker.broker.groups
        groups._failure = OSError("cannot be read")
        pass_time(broker)
        assert start(broker) == 0
        assert broker.produce(b"x").error_code == 0, "a group that cannot be known refuses no producer"
        groups._failure = None
        commit(broker, "billing", 1)
        pass_time(broker)
        assert start(broker) > 0


@pytest.mark.parametrize("at_once", [1, 500])
def test_a_member_is_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Also where groups are looked at in portions."""
    monkeypatch.setattr(named_groups, "GROUPS_AT_ONCE", at_once)
    with broker_with(tmp_path, NO_DELAY, **configured(groups="audit,billing,search", expiry_ms=60_000)) as broker:
        fill(broker, 4)
        commit(broker, "billing", 1)
        member = Consumer(broker, "a", group=BILLING)
        share(member)
        for _ in range(30):
            assert member.heartbeat() == 0
            pass_time(broker, 5_000)
        assert start(broker) == 1
        pass_time(broker, 60_000)
        pass_time(broker, 60_000)
        assert start(broker) == 4


# The disk budget


def two_topics(broker: LocalBroker, policy: str, **limits: Any) -> None:
    broker.create_topic("free", **{**SHORT, "retention_ms": str(DAY_MS)})
    alter(broker, **configured(policy, **limits), retention_ms=str(DAY_MS))
    for _ in range(10):
        broker.produce(bytes(10_000))
        broker.now_ms += 1000
    for _ in range(10):
        broker.produce(bytes(10_000), topic="free")
        broker.now_ms += 1000


def test_under_a_budget_others_go_first_and_then_what_is_held(tmp_path: Path) -> None:
    with broker_with(tmp_path) as broker:
        two_topics(broker, "hold")
        shrink(broker, 140_000)
        assert start(broker) == 0, "though its records are older"
        assert broker.log("free").start_offset > 0
        shrink(broker, 60_000)
        assert broker.log("free").start_offset == 9, "the active segment is never deleted"
        assert 0 < start(broker) < 9
        reasons = {reason for _, _, reason in cuts(broker)}
        assert reasons == {"budget", "hold_cap"}


def test_a_budget_takes_nothing_from_groups_that_limit_producers(tmp_path: Path) -> None:
    with broker_with(tmp_path) as broker:
        two_topics(broker, "reject", bytes=1_000_000)
        shrink(broker, 30_000)
        assert start(broker) == 0
        assert broker.log("free").start_offset == 9


def shrink(broker: LocalBroker, size: int) -> None:
    change = AlterableConfig(name="tailrace.disk.budget.bytes", config_operation=Operation.SET, value=str(size))
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    (answer,) = broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer
    for _ in range(4):
        broker.tick(10_000)
