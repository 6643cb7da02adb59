"""The gate of producers: when appends are delayed and refused, when that ends, and what clients see of it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from backlogs import alter, commit, configured
from brokers import LocalBroker, a_batch, only_partition, produce_request, resolved
from hypothesis import given
from hypothesis import strategies as st
from transactions import TransactionalProducer

from tailrace.broker.backlog import gate
from tailrace.broker.backlog.gate import REFUSES_MS_MIN, Gate, GateState, delay_ms
from tailrace.broker.core.api import Silence
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

OPEN, DELAYING, REFUSING = GateState
NONE, LEADER, ALL = 0, 1, -1
LIMIT = 10_000  # bytes
REFUSED = ErrorCode.NOT_ENOUGH_REPLICAS


# The state machine


@pytest.mark.parametrize(
    ("before", "fill", "after_ms", "now"),
    [
        (OPEN, 0.0, 0, OPEN),
        (OPEN, 0.79, 0, OPEN),
        (OPEN, 0.8, 0, DELAYING),
        (OPEN, 1.0, 0, REFUSING),
        (DELAYING, 0.79, 0, OPEN),
        (DELAYING, 0.99, 0, DELAYING),
        (DELAYING, 7.0, 0, REFUSING),
        (REFUSING, 0.95, 60_000, REFUSING),
        (REFUSING, 0.9, 60_000, REFUSING),
        (REFUSING, 0.89, 999, REFUSING),
        (REFUSING, 0.89, 1_000, DELAYING),
        (REFUSING, 0.0, 999, REFUSING),
        (REFUSING, 0.0, 1_000, OPEN),
    ],
)
def test_states(before: GateState, fill: float, after_ms: int, now: GateState) -> None:
    state_machine = Gate()
    state_machine.update({OPEN: 0.0, DELAYING: 0.9, REFUSING: 1.0}[before], 5_000)
    assert state_machine.state is before
    assert state_machine.update(fill, 5_000 + after_ms) is now


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 3_000)), min_size=1))
def test_a_gate_keeps_its_rules_whatever_comes(steps: list[tuple[float, int]]) -> None:
    state_machine, now, began, before = Gate(), 0, 0, OPEN
    for fill, waited in steps:
        now += waited
        state = state_machine.update(fill, now)
        if before is not REFUSING and state is REFUSING:
            began = now
            assert fill >= 1
        elif before is REFUSING and state is not REFUSING:
            assert fill < 0.9
            assert now - began >= REFUSES_MS_MIN
        elif state is REFUSING:
            assert fill >= 0.9 or now - began < REFUSES_MS_MIN
        else:
            assert fill < 1
            assert (state is DELAYING) == (fill >= 0.8)
        before = state


def test_delays_grow_from_80_percent_on_to_a_second() -> None:
    assert [delay_ms(fill) for fill in (0, 0.8, 0.85, 0.9, 0.95, 1.0, 9.0)] == [0, 0, 62, 250, 562, 1000, 1000]


# With a broker


@contextmanager
def broker_with(path: Path, policy: str, **limits: Any) -> Iterator[LocalBroker]:
    with LocalBroker(path) as broker:
        broker.create_topic(**configured(policy, **(limits or {"bytes": LIMIT})))
        yield broker


def fill_to(broker: LocalBroker, share: float, partition: int = 0) -> None:
    """Appends about so many of the bytes of the limit; not more."""
    left = int(share * LIMIT) // 100 - broker.partition(index=partition).end_offset
    for _ in range(left):
        batch = a_batch(bytes(32), now_ms=broker.now_ms)
        assert len(batch) == 100
        assert broker.ask(produce_request(batch, partition=partition, acks=NONE), 12) is None
        broker.now_ms += 1


def begin(broker: LocalBroker, acks: int, timeout_ms: int = 30_000) -> Any:
    answer = broker.begin(produce_request(a_batch(b"x", now_ms=broker.now_ms), acks=acks, timeout_ms=timeout_ms), 12)
    broker.run_jobs()
    return answer


def pass_ms(broker: LocalBroker, ms: int) -> None:
    """As a server does it: it wakes up at the next deadline."""
    until = broker.now_ms + ms
    while (deadline := broker.broker.next_deadline) is not None and deadline <= until:
        broker.now_ms = max(broker.now_ms, deadline)
        broker.broker.advance(broker.now_ms, broker.steady_ms)
        broker.run_jobs()
    broker.now_ms = until


@pytest.mark.parametrize("policy", ["backpressure", "reject"])
@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_at_the_limit_appends_are_refused_until_the_group_is_below_90_percent(
    tmp_path: Path, policy: str, acks: int
) -> None:
    with broker_with(tmp_path, policy) as broker:
        fill_to(broker, 1.0)
        end = broker.log().end_offset
        answer = broker.produce(b"x", acks=acks)
        assert answer.error_code == REFUSED
        assert answer.error_message.startswith("backlog of group billing on orders-0 is 9.8 KiB, limit 9.8 KiB: ")
        assert answer.base_offset == -1
        assert broker.log().end_offset == end, "before anything is appended"
        commit(broker, "billing", 10)
        broker.now_ms += 5_000
        assert broker.produce(b"x", acks=acks).error_code == REFUSED, "90 % are not less than 90 %"
        commit(broker, "billing", 30)
        assert broker.produce(b"x", acks=acks).error_code == 0


def test_refusing_lasts_a_second_at_least(tmp_path: Path) -> None:
    with broker_with(tmp_path, "reject") as broker:
        fill_to(broker, 1.0)
        assert broker.produce(b"x").error_code == REFUSED
        commit(broker, "billing", 100)
        broker.now_ms += 999
        assert broker.produce(b"x").error_code == REFUSED
        broker.now_ms += 1
        assert broker.produce(b"x").error_code == 0


def test_only_named_groups_and_full_partitions_refuse(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2, **configured("reject", bytes=LIMIT))
        commit(broker, "audit", 0)
        fill_to(broker, 1.0)
        commit(broker, "billing", 100)
        assert broker.produce(b"x").error_code == 0, "audit is not named"
        fill_to(broker, 1.0, partition=1)
        assert broker.produce(b"x", partition=1).error_code == REFUSED
        assert broker.produce(b"x", partition=0).error_code == 0


def test_a_limit_in_time_counts_from_the_first_unread_record(tmp_path: Path) -> None:
    with broker_with(tmp_path, "reject", ms=10_000) as broker:
        for _ in range(3):
            assert broker.produce(b"x").error_code == 0
            broker.now_ms += 4_000
        answer = broker.produce(b"x")
        assert answer.error_code == REFUSED
        assert "is 12 s old, limit 10 s" in answer.error_message
        commit(broker, "billing", 1)
        broker.now_ms += 500
        assert broker.produce(b"x").error_code == REFUSED
        broker.now_ms += 500
        commit(broker, "billing", 2)
        assert broker.produce(b"x").error_code == 0


def test_old_timestamps_do_not_make_a_backlog_old(tmp_path: Path) -> None:
    with broker_with(tmp_path, "reject", ms=10_000) as broker:
        for _ in range(3):
            batch = a_batch(b"x", now_ms=broker.now_ms - 86_400_000)
            assert only_partition(broker.ask(produce_request(batch), 12)).error_code == 0


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    with broker_with(tmp_path, "reject") as broker:
        fill_to(broker, 1.0)
        assert broker.produce(b"x").error_code == REFUSED
        for again in (broker.restart, broker.kill):
            again()
            assert broker.produce(b"x").error_code == REFUSED
        commit(broker, "billing", 50)
        broker.now_ms += 1000
        assert broker.produce(b"x").error_code == 0


def test_a_policy_takes_effect_and_ends_at_run_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalBroker(tmp_path) as broker, caplog.at_level(logging.WARNING):
        broker.create_topic()
        commit(broker, "billing", 0)
        fill_to(broker, 1.0)
        alter(broker, **configured("reject", bytes=LIMIT))
        assert broker.produce(b"x").error_code == REFUSED
        alter(broker, tailrace_backlog_bytes=str(2 * LIMIT))
        broker.now_ms += 1000
        assert broker.produce(b"x").error_code == 0
        alter(broker, tailrace_backlog_bytes=str(LIMIT))
        assert broker.produce(b"x").error_code == REFUSED
        alter(broker, tailrace_backlog_policy=None, tailrace_backlog_groups=None)
        assert broker.produce(b"x").error_code == 0
        broker.tick()
        assert caplog.messages[-1].endswith("are accepted again: its backlog policy no longer limits them")


def test_a_group_that_expires_or_is_deleted_refuses_no_more(tmp_path: Path) -> None:
    with broker_with(tmp_path, "reject", bytes=LIMIT, expiry_ms=60_000) as broker:
        commit(broker, "billing", 0)
        fill_to(broker, 1.0)
        assert broker.produce(b"x").error_code == REFUSED
        broker.now_ms += 60_000
        assert broker.produce(b"x").error_code == 0
        commit(broker, "billing", 0)
        assert broker.produce(b"x").error_code == REFUSED
        broker.ask(DeleteGroupsRequest(groups_names=["billing"]), 2)
        broker.now_ms += 1000
        assert broker.produce(b"x").error_code == 0


def test_one_line_says_that_a_topic_begins_and_stops_refusing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalBroker(tmp_path) as broker, caplog.at_level(logging.WARNING):
        broker.create_topic(partitions=2, **configured("reject", bytes=LIMIT))
        for partition in range(2):
            fill_to(broker, 1.0, partition)
            for _ in range(3):
                broker.produce(b"x", partition=partition)
        (began,) = caplog.messages
        assert began.startswith("producers to orders are refused: backlog of group billing on orders-0 is 9.8 KiB")
        caplog.clear()
        for partition in range(2):
            commit(broker, "billing", 100, partition)
            broker.tick()  # also if no producer asks
        assert caplog.messages == [
            "producers to orders are accepted again: the named groups have caught up on orders-1"
        ]


def test_what_is_refused_keeps_the_order_of_an_idempotent_producer(tmp_path: Path) -> None:
    with broker_with(tmp_path, "reject") as broker:
        fill_to(broker, 1.0)
        ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        assert broker.produce(b"first", base_sequence=0, **ids).error_code == REFUSED
        commit(broker, "billing", 100)
        broker.now_ms += 1000
        later = broker.produce(b"second", base_sequence=1, **ids)
        assert later.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert broker.produce(b"first", base_sequence=0, **ids).error_code == 0
        assert broker.produce(b"second", base_sequence=1, **ids).error_code == 0


@pytest.mark.parametrize("policy", ["backpressure", "reject"])
@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_has_begun_is_not_refused_and_a_new_one_is(
    tmp_path: Path, policy: str, version: int
) -> None:
    with broker_with(tmp_path, policy) as broker:
        begun = TransactionalProducer(broker, "begun", version=version)
        assert begun.produce(bytes(32)).error_code == 0
        fill_to(broker, 1.0)
        assert broker.produce(b"x", acks=LEADER).error_code == REFUSED
        begun_at = broker.log().end_offset
        answer = broker.begin(begun.produce_request(b"second"), 12 if version else 11)
        pass_ms(broker, gate.DELAY_MS_MAX)
        assert broker.log().end_offset == begun_at + 1
        delayed = resolved(answer) if isinstance(answer, DelayedResponse) else [answer]
        assert only_partition(delayed[0]).error_code == 0
        late = TransactionalProducer(broker, "late", version=version)
        assert late.produce(b"refused").error_code == REFUSED
        assert begun.commit().error_code == 0, "markers are no messages of a producer"
        assert begun.produce(b"the next one").error_code == REFUSED
        commit(broker, "billing", 100)
        broker.now_ms += 2_000
        late.sequences.clear()
        assert late.produce(b"again").error_code == 0


# Delays


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_backpressure_delays_the_response_and_not_the_append(tmp_path: Path, acks: int) -> None:
    with broker_with(tmp_path, "backpressure") as broker:
        fill_to(broker, 0.9)
        answers = resolved(begin(broker, acks))
        assert broker.log().end_offset == 91, "it is there"
        assert broker.log().high_watermark == (91 if acks == ALL else 0)
        pass_ms(broker, 249)
        assert answers == []
        pass_ms(broker, 1)
        (answer,) = answers
        assert answer.throttle_time_ms == 250
        assert answer.responses[0].partition_responses[0].base_offset == 90


def test_delays_count_from_the_arrival_and_do_not_add_up(tmp_path: Path) -> None:
    with broker_with(tmp_path, "backpressure") as broker:
        fill_to(broker, 0.9)
        answers = [resolved(begin(broker, LEADER)) for _ in range(5)]
        pass_ms(broker, 450)
        assert [len(answer) for answer in answers] == [1] * 5
        several = [PartitionProduceData(index=0, records=bytes(a_batch(b"x", now_ms=broker.now_ms)))] * 2
        request = ProduceRequest(acks=1, timeout_ms=30_000)
        request.topic_data = [TopicProduceData(name="orders", partition_data=several)]
        both = resolved(broker.begin(request, 12))
        pass_ms(broker, 600)
        assert len(both) == 1


def test_a_delay_takes_a_quarter_of_the_timeout_at_most(tmp_path: Path) -> None:
    with broker_with(tmp_path, "backpressure") as broker:
        fill_to(broker, 0.95)
        answers = resolved(begin(broker, ALL, timeout_ms=400))
        pass_ms(broker, 100)
        assert [answer.throttle_time_ms for answer in answers] == [100]


def test_below_80_percent_nothing_is_delayed_and_reject_never_delays(tmp_path: Path) -> None:
    for policy, share in (("backpressure", 0.7), ("reject", 0.95)):
        with broker_with(tmp_path / policy, policy) as broker:
            fill_to(broker, share)
            (answer,) = resolved(begin(broker, ALL))
            assert answer.throttle_time_ms == 0


def test_a_client_that_is_gone_leaves_no_response_behind(tmp_path: Path) -> None:
    with broker_with(tmp_path, "backpressure") as broker:
        fill_to(broker, 0.95)
        answer = begin(broker, LEADER)
        answers = resolved(answer)
        answer.abandon()
        pass_ms(broker, 2_000)
        assert answers == []
        assert broker.broker.backlog.acks.next_deadline is None


def test_recompressed_batches_are_delayed_too(tmp_path: Path) -> None:
    with broker_with(tmp_path, "backpressure") as broker:
        alter(broker, compression_type="zstd")
        for _ in range(90):
            broker.ask(produce_request(a_batch(bytes(range(26)), now_ms=broker.now_ms), acks=NONE), 12)
        broker.now_ms += 10
        filled = broker.log().size / LIMIT
        assert 0.8 < filled < 1
        answers = resolved(begin(broker, ALL))
        pass_ms(broker, delay_ms(filled) - 30)
        assert answers == []
        pass_ms(broker, 60)
        assert len(answers) == 1


# acks=0


@pytest.mark.parametrize(
    ("policy", "share", "pause_ms"),
    [
        ("backpressure", 0.7, 0),
        ("backpressure", 0.9, 250),
        ("backpressure", 1, 1000),
        ("reject", 0.9, 0),
        ("reject", 1, 1000),
    ],
)
def test_without_acks_appends_are_taken_and_the_connection_pauses(
    tmp_path: Path, policy: str, share: float, pause_ms: int
) -> None:
    with broker_with(tmp_path, policy) as broker:
        fill_to(broker, share)
        end = broker.log().end_offset
        answer = begin(broker, NONE)
        assert isinstance(answer, Silence)
        assert (answer.close, answer.pause_ms) == (False, pause_ms)
        assert broker.log().end_offset == end + 1


# What metrics show


def test_states_and_counts_are_there_for_metrics(tmp_path: Path) -> None:
    with broker_with(tmp_path, "backpressure") as broker:
        gates, topic = broker.broker.backlog.gates, broker.broker.metadata.topics["orders"]
        found = []
        for share in (0.5, 0.9, 1.0):
            fill_to(broker, share)
            found.append(gates.state(topic, "billing", broker.now_ms))
        assert found == [OPEN, DELAYING, REFUSING]
        broker.produce(b"x")
        assert gates.refused["orders"] == 1
        assert gates.delayed["orders"] == 20
        broker.restart()
        topic = broker.broker.metadata.topics["orders"]
        assert broker.broker.backlog.gates.state(topic, "billing", broker.now_ms) is REFUSING
        broker.delete_topic()
        assert broker.broker.backlog.gates.refused == {}


def test_gates_of_many_partitions_open_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "GATES_AT_ONCE", 2)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=5, **configured("reject", bytes=LIMIT))
        for partition in range(5):
            fill_to(broker, 1.0, partition)
            assert broker.produce(b"x", partition=partition).error_code == REFUSED
        commit(broker, "billing", 100)
        for partition in range(1, 5):
            commit(broker, "billing", 100, partition)
        measured: list[str] = []
        measure = gate.PartitionGate.measure
        monkeypatch.setattr(
            gate.PartitionGate,
            "measure",
            lambda self, *of: (measured.append(str(self.partition.name)), measure(self, *of)),
        )
        portions = []
        for _ in range(3):
            measured.clear()
            broker.tick(1000)
            portions.append(len(measured))
        assert portions == [2, 2, 1]
        assert not any(one.gate.state is REFUSING for one in broker.broker.backlog.gates._gates.values())


def test_partitions_that_were_read_take_no_samples_for_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3, **configured("hold", bytes=LIMIT))
        for partition in range(3):
            fill_to(broker, 0.9, partition)
        commit(broker, "billing", 90)
        commit(broker, "billing", 90, 1)
        sampled: list[Any] = []
        samples_of = gate.samples_of
        monkeypatch.setattr(gate, "samples_of", lambda log, now: (sampled.append(log), samples_of(log, now))[1])
        topic = broker.broker.metadata.topics["orders"]
        assert broker.broker.backlog.gates.state(topic, "billing", broker.now_ms) is DELAYING
        assert sampled == [broker.log(index=2)]
