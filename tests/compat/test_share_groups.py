"""Share groups with unchanged clients: what a worker does with a message, and what becomes of it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.brokers import BrokerProcess, against_kafka, new_broker
from compat.clients.confluent import ConfluentClient
from compat.crews import Crew, crew_of, each_worker
from queues import LOCK_MS, SHARE_SETTINGS

RECORD_LOCKS_MIN = 100  # share.partition.max.record.locks


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("queues") / "broker"
    with contextlib.closing(new_broker(directory, settings=SHARE_SETTINGS)) as broker:
        broker.start()
        yield broker


@pytest.fixture
def crew(broker: BrokerProcess, reference: ConfluentClient, name: str) -> Iterator[Crew]:
    reference.create_topic(name)
    with crew_of(broker.bootstrap, f"group-{name}", name) as crew:
        yield crew


@each_worker()
def test_all_messages_are_accepted_once(crew: Crew, kind: str) -> None:
    crew.produce(*(f"accept,{number}" for number in range(100)))
    workers = crew.start(kind, 2)
    crew.wait_until_finished()
    assert sorted(one.place for one in crew.handled) == [(0, offset) for offset in range(100)]
    assert {one.attempt for one in crew.handled} == {1}
    workers.leave()
    assert not crew.refused


@each_worker()
def test_a_released_message_comes_again_with_its_attempt_and_a_rejected_one_does_not(crew: Crew, kind: str) -> None:
    crew.produce("accept", "release-to 3", "reject", "accept")
    crew.start(kind)
    crew.wait_until_finished()
    assert crew.outcomes((0, 0)) == [(1, "accept")]
    assert crew.outcomes((0, 1)) == [(1, "release"), (2, "release"), (3, "accept")]
    assert crew.outcomes((0, 2)) == [(1, "reject")]


@each_worker()
def test_a_message_is_given_up_after_its_attempts(crew: Crew, kind: str) -> None:
    crew.configure(share_delivery_count_limit="3")
    crew.produce("release", "accept")
    crew.start(kind)
    crew.wait_until_finished()
    assert crew.outcomes((0, 0)) == [(1, "release"), (2, "release"), (3, "release")]


@pytest.mark.skipif(against_kafka(), reason="Kafka has dead letters from 4.4 on")
@each_worker()
def test_what_is_given_up_becomes_a_dead_letter_once_with_its_payload_and_the_reason(crew: Crew, kind: str) -> None:
    crew.keep_dead_letters()
    crew.configure(share_delivery_count_limit="3")
    crew.produce("accept", "reject", "release", "release-to 3")
    crew.start(kind, 2)
    crew.wait_until_finished()
    assert crew.accepted == {(0, 0), (0, 3)}
    assert crew.dead_letters() == {(0, 1): (b"reject", "rejected", 1), (0, 2): (b"release", "attempts", 3)}


@pytest.mark.skipif(against_kafka(), reason="Kafka has no retry delays")
@each_worker()
def test_a_released_message_comes_again_after_a_delay_that_grows(crew: Crew, kind: str) -> None:
    crew.configure(tailrace_share_retry_delay_ms="400", tailrace_share_retry_jitter="0")
    crew.produce("release-to 3")
    crew.start(kind, 2)
    crew.wait_until_finished()
    first, second, third = crew.times((0, 0))
    assert second - first >= 0.4
    assert third - second >= 0.8


@each_worker()
def test_messages_of_a_worker_that_is_killed_go_to_another_one_at_once(crew: Crew, kind: str) -> None:
    crew.configure(share_record_lock_duration_ms="60000")
    crew.produce("hold 1000", "accept")
    holder = crew.start(kind)
    crew.wait(lambda: crew.holding)
    holder.kill()
    crew.start(kind)
    crew.wait_until_finished()
    assert crew.outcomes((0, 0)) == [(2, "accept")]


@each_worker()
def test_messages_of_a_worker_that_is_paused_go_to_another_one_when_their_lock_ends(crew: Crew, kind: str) -> None:
    crew.produce("hold 1000", "accept")
    holder = crew.start(kind)
    crew.wait(lambda: crew.holding)
    holder.pause()
    crew.start(kind)
    crew.wait_until_finished()
    assert crew.outcomes((0, 0)) == [(2, "accept")]
    holder.go_on()


@each_worker()
def test_a_worker_that_leaves_releases_what_it_has_not_accepted(crew: Crew, kind: str) -> None:
    crew.configure(share_record_lock_duration_ms="60000")
    crew.produce(*(f"accept,{number}" for number in range(20)))
    crew.start(kind).leave()
    second = crew.start(kind)
    crew.wait_until_finished()
    assert len(crew.accepted) == 20
    second.leave()


@each_worker("java")
def test_a_worker_keeps_a_message_for_longer_than_its_lock_by_renewing_it(crew: Crew, kind: str) -> None:
    crew.produce(f"hold {3 * LOCK_MS / 1000}")
    crew.start(kind, 2)
    crew.wait_until_finished()
    assert crew.outcomes((0, 0)) == [(1, "accept")]


@each_worker()
def test_a_message_that_takes_long_holds_up_no_other(crew: Crew, kind: str) -> None:
    """One of 500 takes as long as the others together; the group may have 100 at a time, and gets on all the same."""
    crew.configure(share_record_lock_duration_ms="60000", share_partition_max_record_locks=str(RECORD_LOCKS_MIN))
    others = 5 * RECORD_LOCKS_MIN
    crew.produce("hold 1000")
    holder = crew.start(kind)
    crew.wait(lambda: crew.holding)
    crew.start(kind, 2)
    crew.produce(*(f"accept,{number}" for number in range(others)))
    crew.wait(lambda: len(crew.accepted) == others)
    assert not crew.outcomes((0, 0))
    holder.kill()
    crew.wait_until_finished()
    assert len(crew.accepted) == others + 1
