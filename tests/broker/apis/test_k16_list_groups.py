"""ListGroups: all groups, or those of some states and types."""

from pathlib import Path

import pytest
from group_requests import BILLING, Consumer, broker_for_groups, commit, share

from tailrace.protocol.messages.list_groups import ListGroupsRequest

VERSIONS = range(6)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_group_is_listed(tmp_path: Path, version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        assert broker.ask(ListGroupsRequest(), version).groups == []
        share(Consumer(broker, "a"))
        commit(broker, 5, group="other")
        listed = broker.ask(ListGroupsRequest(), version).groups
        assert [(one.group_id, one.protocol_type) for one in listed] == [(BILLING, "consumer"), ("other", "")]
        assert [one.group_state for one in listed] == (["Stable", "Empty"] if version >= 4 else ["", ""])
        assert {one.group_type for one in listed} == {"classic" if version >= 5 else ""}


@pytest.mark.parametrize(
    ("states", "listed"),
    [
        ([], ["empty", "joining", "stable"]),
        (["Stable"], ["stable"]),
        (["stable", "EMPTY"], ["empty", "stable"]),
        (["CompletingRebalance"], ["joining"]),
        (["PreparingRebalance"], []),
        (["Dead"], []),
        (["nonsense"], []),
    ],
)
@pytest.mark.parametrize("version", [4, 5])
def test_groups_of_some_states_are_listed(tmp_path: Path, states: list[str], listed: list[str], version: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 5, group="empty")
        Consumer(broker, "a", group="joining").enter()
        share(Consumer(broker, "a", group="stable"))
        answer = broker.ask(ListGroupsRequest(states_filter=states), version)
        assert sorted(one.group_id for one in answer.groups) == listed


@pytest.mark.parametrize(
    ("types", "count"), [([], 1), (["classic"], 1), (["Classic"], 1), (["consumer"], 0), (["consumer", "classic"], 1)]
)
def test_groups_of_some_types_are_listed(tmp_path: Path, types: list[str], count: int) -> None:
    with broker_for_groups(tmp_path) as broker:
        broker.create_topic()
        commit(broker, 5)
        assert len(broker.ask(ListGroupsRequest(types_filter=types), 5).groups) == count
        assert len(broker.ask(ListGroupsRequest(types_filter=types, states_filter=["Stable"]), 5).groups) == 0
