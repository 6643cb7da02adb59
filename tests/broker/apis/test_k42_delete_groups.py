"""DeleteGroups: groups without members go, with all their offsets."""

from pathlib import Path

import pytest
from group_requests import BILLING, Consumer, broker_for_groups, commit, offsets, share

from tailrace.broker.core.topics import LOSSES_TOPIC
from tailrace.facts import losses
from tailrace.facts.losses import LossReason
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest

VERSIONS = range(3)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_goes_with_its_offsets_and_one_with_members_stays(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=2)
        for partition in (0, 1):
            commit(broker, 5, partition=partition)
        (a,) = share(Consumer(broker, "a", group="busy"))
        a.commit(7)
        answer = broker.ask(DeleteGroupsRequest(groups_names=[BILLING, "busy", "nobody", BILLING]), version)
        assert [(one.group_id, one.error_code) for one in answer.results] == [
            (BILLING, 0),
            ("busy", ErrorCode.NON_EMPTY_GROUP),
            ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ], "each once"
        for _ in range(2):
            assert (offsets(broker), offsets(broker, "busy")) == ({}, {("orders", 0): 7})
            assert list(broker.broker.groups.groups) == ["busy"]
            broker.kill()
        assert a.heartbeat() == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_of_the_same_name_begins_anew(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        (a,) = share(Consumer(broker, "a"))
        a.commit(7)
        a.leave()
        broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), version)
        assert a.join().code == ErrorCode.UNKNOWN_MEMBER_ID
        (b,) = share(Consumer(broker, "b"))
        assert (b.generation, offsets(broker)) == (1, {})


def test_one_that_was_told_its_id_in_a_group_that_is_deleted_has_to_begin_anew(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        a = Consumer(broker, "a")
        a.join()
        (result,) = broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2).results
        assert result.error_code == 0
        assert a.join().code == ErrorCode.UNKNOWN_MEMBER_ID
        broker.tick(60_000)


def test_what_a_deleted_group_had_not_read_is_in_the_loss_ledger(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic(partitions=3)
        for partition in (0, 1):
            broker.produce(b"a", b"b", b"c", b"d", partition=partition)
        commit(broker, 1, partition=0)
        commit(broker, 4, partition=1)
        commit(broker, 0, partition=2)
        request = DeleteGroupsRequest(groups_names=[BILLING, "nobody"])
        assert broker.ask(request, 2, client_id="ops").results[0].error_code == 0
        for _ in range(2):
            (loss,) = map(losses.decode, broker.values(LOSSES_TOPIC))
            assert (loss.kind, loss.group, loss.topic, loss.partition) == ("skipped", BILLING, "orders", 0)
            assert (loss.first, loss.last, loss.records, loss.exact) == (1, 3, 3, True)
            assert (loss.reason, loss.client_id, loss.at) == (LossReason.GROUP_DELETED, "ops", broker.now_ms)
            broker.kill()


def test_a_group_that_is_not_deleted_has_lost_nothing(tmp_path: Path) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a", b"b")
        (a,) = share(Consumer(broker, "a"))
        a.commit(1)
        (result,) = broker.ask(DeleteGroupsRequest(groups_names=[BILLING]), 2).results
        assert result.error_code == ErrorCode.NON_EMPTY_GROUP
        assert broker.broker.topic(LOSSES_TOPIC) is None
