"""The plan of a stream against a real broker, as Spark would ask for it, without Spark."""

import functools
import json
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tailrace.client.cluster.metadata import TopicPartition as Place
from tailrace.client.errors import GroupIsActive
from tailrace.facts.losses import LossKind
from tailrace.monitor.sources.published import losses_in_ledger
from tailrace.spark.pipelines.failures import may_pass
from tailrace.spark.source.json_files import lines
from tailrace.spark.source.losses import FILE, DataLost, GoneSincePlanned
from tailrace.spark.source.options import BadOptions, source_options
from tailrace.spark.source.positions import Positions
from tailrace.spark.source.reader import Range, ranges, read
from tailrace.spark.source.recorded_batches import RecordedPlan, write_ends
from tailrace.spark.source.stream import StreamPlan, TriggerDelay
from tailrace.testing import Broker

Options = dict[str, str]
Produce = Callable[..., None]


def plan_of(options: Options, **more: str) -> StreamPlan:
    return StreamPlan(source_options(options | more, is_stream=True))


def values(plan: StreamPlan, start: Positions, end: Positions) -> list[str]:
    """What a batch reads."""
    found = ranges(plan.begin(start, end), end, 0)
    tables = [batch for one in found for batch in read(plan.options, one)]
    return sorted(value.as_py().decode() for table in tables for value in table.column("value"))


def ends(positions: Positions) -> list[int]:
    return [offset for _, offset in sorted(positions.offsets.items())]


@functools.cache
def admin(broker: Broker) -> AdminClient:
    """One for all: it gives no answer once nobody holds it."""
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    for future in admin(broker).delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(10)


def recreate(broker: Broker, topic: str) -> None:
    client = admin(broker)
    client.delete_topics([topic])[topic].result(10)
    client.create_topics([NewTopic(topic, 2, 1)])[topic].result(10)


# The start


def test_the_start_is_pinned_although_messages_come(options: Options, produce: Produce) -> None:
    produce("old")
    plan = plan_of(options)
    initial = plan.initial()
    produce("new")
    assert plan.initial() == initial
    first = plan.next_end(initial, None)
    assert first == initial, "an empty batch 0 writes it down"
    second = plan.next_end(first, None)
    assert values(plan, first, second) == ["new"]


def test_a_start_beyond_the_end_that_was_written_down_is_an_empty_batch(options: Options, produce: Produce) -> None:
    """The driver was killed in batch 0: its end is known, and its start is found anew."""
    written = plan_of(options).initial()
    produce("between")
    plan = plan_of(options)
    assert values(plan, plan.initial(), written) == []
    assert values(plan, written, plan.next_end(written, None)) == ["between"]


def test_records_deleted_before_a_killed_batch_0_is_planned_again_are_missed(
    broker: Broker, topic: str, options: Options, produce: Produce
) -> None:
    """The earliest start is later by now, and the end that was written down is not: what is between is a loss."""
    produce(*"abcde")
    written = plan_of(options, startingOffsets="earliest").initial()
    delete_before(broker, topic, 3)
    plan = plan_of(options, startingOffsets="earliest")
    assert values(plan, plan.initial(), written) == []
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 0 to 2 are missing"):
        values(plan, written, plan.next_end(written, None))


def test_a_query_that_goes_on_pins_nothing(options: Options, produce: Produce) -> None:
    before = plan_of(options).initial()
    produce("a", "b")
    plan = plan_of(options)
    assert values(plan, before, plan.next_end(before, None)) == ["a", "b"]


def test_a_group_is_where_a_new_query_begins(broker: Broker, topic: str, options: Options, produce: Produce) -> None:
    produce("a", "b", "c")
    with_group = options | {"group": f"etl-{topic}", "startingOffsets": "group"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"etl-{topic}", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    assert ends(plan_of(with_group).initial()) == [2, 0]


# The end


def test_a_limit_is_shared_by_what_there_is(options: Options, produce: Produce) -> None:
    produce(*map(str, range(30)))
    produce(*map(str, range(10)), partition=1)
    plan = plan_of(options, startingOffsets="earliest")
    start = plan.next_end(plan.initial(), 8)
    assert ends(plan.next_end(start, 8)) == [6, 2]
    reached, steps = start, 0
    while ends(reached) != [30, 10]:
        reached, steps = plan.next_end(reached, 8), steps + 1
    assert steps <= 7


def test_a_batch_waits_until_it_has_enough_offsets(options: Options, produce: Produce) -> None:
    """The first one does not, and neither does one of AvailableNow."""
    plan = plan_of(options, startingOffsets="earliest", minOffsetsPerTrigger="3")
    produce("a")
    start = plan.next_end(plan.initial(), None)
    first = plan.next_end(start, None)
    assert ends(first) == [1, 0]
    produce("b", "c")
    assert plan.next_end(first, None) == first, "two are not enough"
    produce("d", partition=1)
    assert ends(plan.next_end(first, None)) == [3, 1]
    plan.prepare_for_available_now()
    assert ends(plan.next_end(Positions(first.offsets), None)) == [3, 1]


def test_a_batch_that_waited_long_enough_starts_with_what_there_is(options: Options, produce: Produce) -> None:
    plan = plan_of(options, startingOffsets="earliest", minOffsetsPerTrigger="100", maxTriggerDelay="300ms")
    produce("a")
    start = plan.next_end(plan.initial(), None)
    first = plan.next_end(start, None)
    produce("b")
    while (reached := plan.next_end(first, None)) == first:
        pass
    assert ends(reached) == [2, 0]


@pytest.mark.parametrize(
    ("new", "now", "expected"), [(0, 105.0, 0.0), (9, 105.0, 5.0), (10, 105.0, 0.0), (9, 110.0, 0.0)]
)
def test_a_delay_is_counted_from_the_start_of_the_last_batch(new: int, now: float, expected: float) -> None:
    delay = TriggerDelay(10, 10.0)
    assert delay.remaining(1, 100.0) == 0.0, "the first of a run"
    assert delay.remaining(new, now) == expected


def test_at_the_end_it_waits_and_is_told_of_the_next_message(
    options: Options, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(options)
    start = plan.next_end(plan.initial(), None)
    began = time.monotonic()
    assert plan.next_end(start, None) == start
    assert time.monotonic() - began >= 0.4
    monkeypatch.setattr(StreamPlan._wait, "__defaults__", (300.0,))  # longer than a test may take
    sender = threading.Timer(0.1, produce, ["now"])
    sender.start()
    end = plan.next_end(start, None)
    sender.join()
    assert values(plan, start, end) == ["now"]


def test_available_now_ends_where_the_log_ended_when_it_began(options: Options, produce: Produce) -> None:
    produce("a")
    plan = plan_of(options, startingOffsets="earliest")
    plan.prepare_for_available_now()
    produce("b")
    start = plan.next_end(plan.initial(), None)
    end = plan.next_end(start, None)
    assert values(plan, start, end) == ["a"]
    assert plan.next_end(end, None) == end


def test_a_partition_that_is_new_is_read_from_its_beginning(
    broker: Broker, topic: str, options: Options, produce: Produce
) -> None:
    plan = plan_of(options)
    start = plan.next_end(plan.initial(), None)
    admin(broker).create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    produce("third", partition=2)
    pinned = plan.next_end(start, 1)
    assert (ends(pinned), values(plan, start, pinned)) == ([0, 0, 0], []), "where it begins is written down first"
    assert values(plan, pinned, plan.next_end(pinned, 1)) == ["third"]


def test_a_pattern_finds_topics_that_come_later(broker: Broker, topic: str, options: Options, produce: Produce) -> None:
    by_pattern = {name: value for name, value in options.items() if name != "subscribe"}
    plan = plan_of(by_pattern | {"subscribePattern": f"{topic}.*"})
    start = plan.next_end(plan.initial(), None)
    broker.create_topic(f"{topic}-too")
    produce("hello", to=f"{topic}-too")
    pinned = plan.next_end(start, None)
    assert values(plan, pinned, plan.next_end(pinned, None)) == ["hello"]


# What others see


def test_the_group_is_where_the_last_batch_that_is_done_has_ended(
    broker: Broker, topic: str, options: Options, produce: Produce
) -> None:
    group = f"etl-{topic}"
    plan = plan_of(options | {"group": group}, startingOffsets="earliest")
    produce("a", "b")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})

    def committed() -> list[int]:
        return [one.offset for one in consumer.committed([TopicPartition(topic, n) for n in (0, 1)], timeout=10)]

    start = plan.next_end(plan.initial(), None)
    assert committed() == [0, 0], "before the first record is read"
    end = plan.next_end(start, None)
    assert committed() == [0, 0], "the batch is not done"
    plan.next_end(end, None)
    assert committed() == [2, 0]
    consumer.close()


def test_what_executors_have_read_is_no_loss_of_the_group(
    broker: Broker, topic: str, options: Options, produce: Produce
) -> None:
    """The driver commits, and has fetched none of it."""
    plan = plan_of(options | {"group": f"etl-{topic}"}, startingOffsets="earliest")
    start = plan.next_end(plan.initial(), None)
    produce(*"abcde")
    end = plan.next_end(start, None)
    plan.next_end(end, None)
    delete_before(broker, topic, 1)  # from here on there is a ledger in any case
    found = [loss for loss in losses_in_ledger(plan._cluster) if loss.topic == topic]
    assert [loss.kind for loss in found] == [LossKind.CUT]


def test_an_idle_query_commits_again_so_that_its_offsets_are_not_forgotten(
    topic: str, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = []
    monkeypatch.setattr("tailrace.spark.source.stream.groups.commit", lambda *arguments: commits.append(arguments))
    monkeypatch.setattr("tailrace.spark.source.stream.WAIT_S", 0.01)
    plan = plan_of(options | {"group": f"etl-{topic}"})
    start = plan.next_end(plan.initial(), None)
    assert (plan.next_end(start, None), len(commits)) == (start, 1)
    monkeypatch.setattr("tailrace.spark.source.stream.COMMIT_AGAIN_S", 0.0)
    assert (plan.next_end(start, None), len(commits)) == (start, 2)


def test_a_group_with_members_is_an_error(broker: Broker, topic: str, options: Options) -> None:
    group = f"busy-{topic}"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    plan = plan_of(options | {"group": group})
    with pytest.raises(GroupIsActive, match="stop its consumers"):
        plan.next_end(plan.initial(), None)
    consumer.close()


# What is missing


def test_deleted_records_stop_the_query_with_the_range(
    broker: Broker, topic: str, options: Options, produce: Produce
) -> None:
    plan = plan_of(options, startingOffsets="earliest")
    start = plan.initial()
    produce(*"abcde")
    delete_before(broker, topic, 3)
    end = plan_of(options).next_end(start, None)
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 0 to 2 are missing") as caught:
        plan.begin(start, end)
    assert "onDataLoss=earliest" in str(caught.value)
    lenient = plan_of(options, failOnDataLoss="false")
    assert values(lenient, start, end) == ["d", "e"]


def test_a_loss_is_written_down_where_that_is_asked_for(
    broker: Broker, topic: str, options: Options, produce: Produce, tmp_path: Path
) -> None:
    plan = plan_of(options, startingOffsets="earliest", onDataLoss="report", stateDirectory=str(tmp_path / "state"))
    start = plan.initial()
    produce(*"abcde")
    delete_before(broker, topic, 3)
    assert values(plan, start, plan_of(options).next_end(start, None)) == ["d", "e"]
    (line,) = (tmp_path / "state" / FILE).read_text().splitlines()
    loss: dict[str, Any] = json.loads(line)
    assert (loss["topic"], loss["partition"], loss["from"], loss["to"]) == (topic, 0, 0, 3)


def test_a_topic_made_again_is_another_one_however_far_it_is(
    broker: Broker, topic: str, options: Options, produce: Produce
) -> None:
    group = f"etl-{topic}"
    plan = plan_of(options | {"group": group}, startingOffsets="earliest")
    produce("a")
    start = plan.next_end(plan.initial(), None)
    end = plan.next_end(start, None)
    (planned,) = ranges(plan.begin(start, end), end, 0)
    recreate(broker, topic)
    produce("x", "y", "z")
    with pytest.raises(DataLost, match=r"all from offset 1 on is missing .the topic was deleted, and made again"):
        plan.next_end(end, None)
    with pytest.raises(DataLost, match=r"offsets 0 to 0 are missing .gone while they were read"):
        list(read(plan.options, planned))
    with pytest.raises(DataLost, match=r"offsets 0 to 0 are missing .the topic was deleted, and made again"):
        plan.begin(start, end)  # after a restart
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    assert consumer.committed([TopicPartition(topic, 0)], timeout=10)[0].offset < 0, "no old offset in the new topic"
    consumer.close()
    lenient = plan_of(options, onDataLoss="earliest")
    pinned = lenient.next_end(end, None)
    assert values(lenient, end, pinned) == []
    assert values(lenient, pinned, lenient.next_end(pinned, None)) == ["x", "y", "z"]


@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_batch_of_a_topic_that_was_deleted_since_is_a_loss_that_is_written_down(
    broker: Broker, topic: str, options: Options, produce: Produce, tmp_path: Path, is_made_again: bool
) -> None:
    """It was planned before a crash, and is planned again after it."""
    produce("a", "b")
    plan = plan_of(options, startingOffsets="earliest", onDataLoss="report", stateDirectory=str(tmp_path))
    start = plan.next_end(plan.initial(), None)
    end = plan.next_end(start, None)
    if is_made_again:
        recreate(broker, topic)
        produce("x", "y", "z")
    else:
        admin(broker).delete_topics([topic])[topic].result(10)
    assert values(plan, start, end) == []
    (line,) = (tmp_path / FILE).read_text().splitlines()
    loss = json.loads(line)
    assert (loss["partition"], loss["from"], loss["to"]) == (0, 0, 2)


@pytest.mark.parametrize("is_made_again", [True, False])
def test_available_now_goes_on_without_a_topic_that_went_meanwhile(
    broker: Broker, topic: str, options: Options, produce: Produce, is_made_again: bool
) -> None:
    other = f"{topic}-other"
    broker.create_topic(other)
    produce("a")
    produce("b", to=other)
    both = options | {"subscribe": f"{topic},{other}"}
    plan = plan_of(both, startingOffsets="earliest", onDataLoss="earliest")
    plan.prepare_for_available_now()
    start = plan.next_end(plan.initial(), None)
    if is_made_again:
        recreate(broker, topic)
    else:
        admin(broker).delete_topics([topic])[topic].result(10)
    end = plan.next_end(start, None)
    assert values(plan, start, end) == ["b"]
    assert plan.next_end(end, None) == end, "it is at its end"
    if is_made_again:
        produce("c")
        later = plan_of(both, onDataLoss="earliest")
        pinned = later.next_end(end, None)
        assert values(later, pinned, later.next_end(pinned, None)) == ["c"], "the next run finds the new one"


def test_a_log_that_ends_before_where_we_are_has_lost_its_end(options: Options, produce: Produce) -> None:
    """As a checkpoint without ids finds a topic that was made again."""
    produce(*"abc")
    plan = plan_of(options)
    known = plan.initial().offsets
    beyond = Positions(dict.fromkeys(known, 500))
    with pytest.raises(DataLost, match=r"-0: offsets 3 to 499 are missing .the log ends before"):
        plan.next_end(beyond, None)
    lenient = plan_of(options, onDataLoss="earliest")
    back = lenient.next_end(beyond, None)
    assert (ends(back), values(lenient, beyond, back)) == ([3, 0], [])
    produce("d")
    assert values(lenient, back, lenient.next_end(back, None)) == ["d"]


def test_available_now_reads_on_after_a_kill_in_batch_0(options: Options, produce: Produce) -> None:
    produce("a")
    written = plan_of(options, startingOffsets="earliest").initial()
    plan = plan_of(options, startingOffsets="earliest")
    plan.prepare_for_available_now()
    assert values(plan, plan.initial(), written) == [], "batch 0 is planned again, as it was written down"
    assert values(plan, written, plan.next_end(written, None)) == ["a"]


def test_records_that_go_while_they_are_read_are_a_loss(
    broker: Broker, topic: str, options: Options, produce: Produce
) -> None:
    produce(*"abcde")
    plan = plan_of(options, startingOffsets="earliest")
    start = plan.initial()
    end = plan_of(options).next_end(start, None)
    (planned,) = ranges(plan.begin(start, end), end, 0)
    delete_before(broker, topic, 3)
    with pytest.raises(DataLost, match=r"-0: offsets 0 to 2 are missing .gone while they were read"):
        list(read(plan.options, planned))
    lenient = plan_of(options, onDataLoss="earliest")
    tables = list(read(lenient.options, planned))
    assert [value.as_py() for table in tables for value in table.column("value")] == [b"d", b"e"]


def test_records_deleted_during_a_read_are_noted_when_the_batch_is_planned_again(
    broker: Broker, topic: str, options: Options, produce: Produce, tmp_path: Path
) -> None:
    produce(*"abcde")
    plan = plan_of(options, startingOffsets="earliest", onDataLoss="report", stateDirectory=str(tmp_path))
    start = plan.initial()
    end = plan_of(options).next_end(start, None)
    (planned,) = ranges(plan.begin(start, end), end, 0)
    delete_before(broker, topic, 3)
    with pytest.raises(GoneSincePlanned, match=r"-0: offsets 0 to 2 are missing .*has to be planned again") as caught:
        list(read(plan.options, planned))
    assert may_pass(RuntimeError("".join(traceback.format_exception(caught.value)))), "so that `.run` starts it again"
    assert values(plan, start, end) == ["d", "e"]
    (loss,) = map(json.loads, (tmp_path / FILE).read_text().splitlines())
    assert (loss["from"], loss["to"]) == (0, 3)


def test_a_log_that_lost_its_end_while_it_is_read_misses_all_from_there_on(
    topic: str, options: Options, produce: Produce, tmp_path: Path
) -> None:
    produce(*"abc")
    gone = Range(Place(topic, 0), 500, 600)
    with pytest.raises(DataLost, match=r"-0: offsets 500 to 599 are missing .gone while they were read"):
        list(read(plan_of(options).options, gone))
    assert list(read(plan_of(options, onDataLoss="earliest").options, gone)) == []
    start, end = Positions({Place(topic, 0): 500}), Positions({Place(topic, 0): 600})
    with pytest.raises(DataLost, match=r"-0: offsets 500 to 599 are missing .the log ends before"):
        plan_of(options).begin(start, end)
    noting = plan_of(options, onDataLoss="report", stateDirectory=str(tmp_path))
    assert values(noting, start, end) == []
    (loss,) = map(json.loads, (tmp_path / FILE).read_text().splitlines())
    assert (loss["from"], loss["to"]) == (500, 600)


def test_a_line_about_losses_that_a_kill_has_cut_is_written_again(
    broker: Broker, topic: str, options: Options, produce: Produce, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_text('{"topic": "ord{"topic":\n{"topic": "orders", "partit')
    produce(*"abcde")
    plan = plan_of(options, startingOffsets="earliest", onDataLoss="report", stateDirectory=str(tmp_path))
    start = plan.initial()
    end = plan_of(options).next_end(start, None)
    delete_before(broker, topic, 3)
    for _ in range(2):
        assert values(plan, start, end) == ["d", "e"]
    (loss,) = lines(tmp_path / FILE)
    assert (loss["from"], loss["to"]) == (0, 3)


def test_recorded_batches_are_played_from_the_first_on(options: Options, topic: str, tmp_path: Path) -> None:
    place = Place(topic, 0)
    recorded = [Positions({place: at}, {topic: b"the id of topics"}) for at in (0, 3, 3, 5)]
    write_ends(tmp_path / "ends", recorded)

    def plan() -> RecordedPlan:
        return RecordedPlan(source_options(options, is_stream=True), str(tmp_path / "ends"))

    new = plan()
    assert [new.next_end(start, None) for start in (recorded[0], *recorded[:3])] == recorded
    with pytest.raises(BadOptions, match=f"ends at offset 0 of {topic}-0, and this query is at 3"):
        plan().next_end(recorded[1], None)
    made_again = Positions({place: 3}, {topic: b"another topic id"})
    assert plan().next_end(made_again, None) == recorded[0]


def test_a_topic_that_is_gone_stops_the_query(broker: Broker, topic: str, options: Options) -> None:
    plan = plan_of(options)
    start = plan.next_end(plan.initial(), None)
    admin(broker).delete_topics([topic])[topic].result(10)
    with pytest.raises(DataLost, match="the topic, or this partition of it, is gone"):
        plan.next_end(start, None)
    lenient = plan_of(options, onDataLoss="earliest")
    assert lenient.next_end(start, None).offsets == {}
