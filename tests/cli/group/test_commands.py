"""`tailrace group`, run as a user runs it, against a broker."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

Run = Callable[..., tuple[str, str]]
NewTopic = Callable[..., str]
Join = Callable[..., Any]


def shown(run: Run, group: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("group", "show", group, "--json")[0])
    return found


def committed(run: Run, group: str) -> dict[int, int | None]:
    """By partition, of the one topic that the group reads."""
    return {row["partition"]: row["committed"] for row in shown(run, group)["partitions"]}


@pytest.fixture
def commit(admin: Any) -> Callable[..., None]:
    """Commits offsets for a group that has no members, with metadata where some is given."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    def commit(group: str, topic: str, *offsets: int, metadata: str = "") -> None:
        places = [TopicPartition(topic, number, offset, metadata) for number, offset in enumerate(offsets)]
        result = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(20)
        assert not [place for place in result.topic_partitions if place.error]

    return commit


@pytest.fixture
def group(unused: str, ten: str, commit: Callable[..., None]) -> str:
    """A group that has read four of the ten messages of `ten`."""
    commit(unused, ten, 4)
    return unused


def test_groups_are_listed_with_what_they_have_still_to_read(run: Run, group: str, ten: str, join: Join) -> None:
    (row,) = [row for row in json.loads(run("group", "list", "--json")[0]) if row["name"] == group]
    assert row == {"name": group, "state": "empty", "kind": "simple", "members": 0, "lag": 6}
    join(group, ten)
    said = run("group", "ls", "--lagging", "--state", "stable")[0].splitlines()
    assert said[0].split() == ["GROUP", "STATE", "KIND", "MEMBERS", "LAG"]
    assert [group, "stable", "classic", "1", "6"] in [line.split() for line in said]
    assert group not in run("group", "list", "--state", "empty", "--json")[0]
    assert "--state takes" in run("group", "list", "--state", "lazy", code=2)[1]


def test_one_group_is_shown_with_members_and_lag(run: Run, ten: str, group: str, join: Join) -> None:
    join(group, ten, client_id="worker", group_instance_id="the-first")
    found = shown(run, group)
    (member,) = found["members"]
    assert (member["client_id"], member["instance_id"], member["host"]) == ("worker", "the-first", "127.0.0.1")
    assert member["partitions"] == [{"topic": ten, "partition": 0}]
    place = {"topic": ten, "partition": 0, "committed": 4, "start": 0, "end": 10, "lag": 6, "lost": 0}
    place |= {"stuck_seconds": None, "stuck_longer": False}
    assert found["partitions"] == [{**place, "owner": member["id"]}]
    assert (found["state"], found["assignor"], found["lag"]) == ("stable", "range", 6)
    said = run("group", "show", group)[0]
    assert [ten, "0", "4", "0", "10", "6", "the-first"] in [line.split() for line in said.splitlines()]
    assert "idle" not in said


def test_idle_members_are_named_with_what_can_be_done(run: Run, ten: str, group: str, join: Join) -> None:
    for name in ("ann", "bob"):
        join(group, ten, client_id=name)
    said = run("group", "show", group)[0]
    (idle,) = [row["label"] for row in shown(run, group)["members"] if not row["partitions"]]
    assert f"{idle} is idle: a partition has one owner, and 2 members share 1 partition of {ten}" in said
    assert f"`tailrace topic alter {ten} --partitions 2`" in said


def test_what_was_never_committed_is_said_and_not_counted(
    run: Run, new_topic: NewTopic, unused: str, commit: Any
) -> None:
    topic = new_topic(partitions=3)
    commit(unused, topic, 0)
    assert committed(run, unused) == {0: 0, 1: None, 2: None}
    said = run("group", "show", unused)[0]
    assert f"Never committed, and not in the lag: {topic}:1,2" in said
    assert said.splitlines()[0] == f"{unused}  empty, 0 members, lag 0"


def test_messages_that_retention_took_from_a_group_are_told(
    run: Run, ten: str, group: str, delete_before: Callable[[str, int], None]
) -> None:
    delete_before(ten, 6)
    assert f"{ten} [0]: 2 messages (4 to 5) deleted by retention" in run("group", "show", group)[0]
    assert shown(run, group)["lag"] == 4
    assert "(the log begins at 6; asked for was 5)" in run("group", "reset", group, "--shift", -1, "--dry-run")[0]


@pytest.mark.parametrize("arguments", [("show",), ("reset", "--to", "latest"), ("delete", "--yes"), ("copy", "other")])
def test_a_group_that_is_not_there_ends_with_4(run: Run, unused: str, arguments: tuple[str, ...]) -> None:
    verb, *rest = arguments
    assert f"there is no group '{unused}'" in run("group", verb, unused, *rest, code=4)[1]


def test_a_mistyped_group_gets_a_suggestion(run: Run, group: str) -> None:
    assert f"did you mean {group}" in run("group", "show", f"{group}x", code=4)[1]


@pytest.mark.parametrize(
    ("where", "target", "effect"),
    [
        (("--to", "earliest"), 0, "repeats 4 messages"),
        (("--to", "latest"), 10, "skips 6 messages"),
        (("--to", "7"), 7, "skips 3 messages"),
        (("--to", "last:1"), 9, "skips 5 messages"),
        (("--to", "-1h"), 0, "repeats 4 messages"),
        (("--shift", "-3"), 1, "repeats 3 messages"),
        (("--shift", "100"), 10, "skips 6 messages"),
    ],
)
def test_a_group_is_moved_and_what_that_means_is_told(
    run: Run, group: str, ten: str, where: tuple[str, ...], target: int, effect: str
) -> None:
    said, warned = run("group", "reset", group, *where, "--yes")
    assert said.splitlines()[1].split()[:6] == [ten, "0", "4", str(target), *effect.split()[:2]]
    assert said.splitlines()[-1] == f"reset {group} in 1 partition: {effect}"
    assert committed(run, group) == {0: target}
    assert warned == ""


def test_a_move_is_shown_first_and_made_only_if_somebody_says_yes(run: Run, group: str) -> None:
    said = run("group", "reset", group, "--to", 99, "--dry-run")[0]
    assert "skips 6 messages (the log ends at 10; asked for was 99)" in said
    assert said.splitlines()[-1] == f"would reset {group} in 1 partition: skips 6 messages"
    assert "--yes" in run("group", "reset", group, "--to", 99, code=5)[1]
    assert committed(run, group) == {0: 4}
    assert run("group", "reset", group, "--to", 4)[0].splitlines()[-1] == f"group {group} stays as it is"


def test_a_time_moves_to_the_first_message_that_is_not_older(run: Run, new_topic: NewTopic, unused: str) -> None:
    topic, now = new_topic(), datetime.now(UTC).replace(microsecond=0)
    moments = [now - timedelta(minutes=minutes) for minutes in (30, 20, 10)]
    rows = [{"value": "x", "timestamp": int(moment.timestamp() * 1000)} for moment in moments]
    run("produce", topic, "--json", given="\n".join(map(json.dumps, rows)).encode())
    run("group", "reset", unused, "--topic", topic, "--to", "-15m", "--yes")
    assert committed(run, unused) == {0: 2}
    run("group", "reset", unused, "--to", moments[1].isoformat(), "--yes")
    assert committed(run, unused) == {0: 1}


def test_a_group_that_is_not_there_begins_where_it_is_reset_to(run: Run, new_topic: NewTopic, unused: str) -> None:
    topic = new_topic(partitions=4)
    assert "begins here" in run("group", "reset", unused, "--topic", f"{topic}:0,2", "--to", "earliest", "--yes")[0]
    assert committed(run, unused) == {0: 0, 1: None, 2: 0, 3: None}
    said = run("group", "reset", unused, "--topic", topic, "--shift", 1, "--dry-run")[0]
    assert said.count("left out: it has no offset that could be shifted") == 2


def test_other_partitions_stay_where_they_are(run: Run, new_topic: NewTopic, unused: str, commit: Any) -> None:
    topic, other = new_topic(partitions=2), new_topic()
    run("produce", topic, "--partition", 1, given=b"a\nb\n")
    commit(unused, topic, 0, 1)
    commit(unused, other, 0)
    run("group", "reset", unused, "--topic", f"{topic}:1", "--to", "latest", "--yes")
    assert [row["committed"] for row in shown(run, unused)["partitions"] if row["topic"] == topic] == [0, 2]
    assert "there is no partition" in run("group", "reset", unused, "--topic", f"{topic}:5", "--to", "0", code=4)[1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "--to"),
        (("--to", "latest", "--shift", "1"), "--shift"),
        (("--to", "soon"), "--to: 'soon' is no position"),
        (("--to", "0", "--topic", "a:b"), "--topic takes"),
    ],
)
def test_a_reset_that_makes_no_sense_ends_with_2(run: Run, group: str, options: tuple[str, ...], why: str) -> None:
    assert why in run("group", "reset", group, *options, code=2)[1]


def test_nothing_is_changed_over_the_head_of_members(run: Run, ten: str, group: str, join: Join) -> None:
    join(group, ten, client_id="worker")
    for arguments in (("reset", group, "--to", 0, "--yes"), ("delete", group, "--yes"), ("copy", ten, group)):
        if arguments[0] == "copy":
            run("group", "reset", ten, "--topic", ten, "--to", 1, "--yes")
        warned = run("group", *arguments, code=5)[1]
        assert f"group {group} has 1 member (worker at 127.0.0.1)" in warned
        assert "stop them first" in warned
    assert committed(run, group) == {0: 4}


def test_a_group_is_copied_with_metadata_while_it_works(
    run: Run, ten: str, unused: str, commit: Any, join: Join, admin: Any
) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    commit(unused, ten, 4, metadata="how far")
    join(unused, ten)
    copy = f"{unused}-copy"
    assert "would copy 1 offset" in run("group", "copy", unused, copy, "--dry-run")[0]
    run("group", "show", copy, code=4)
    assert run("group", "copy", unused, copy)[0].splitlines()[-1] == f"copied 1 offset of {unused} to {copy}"
    asked = [ConsumerGroupTopicPartitions(copy)]
    (place,) = admin.list_consumer_group_offsets(asked)[copy].result(20).topic_partitions
    assert (place.offset, place.metadata) == (4, "how far")
    assert "nothing was copied" in run("group", "copy", unused, copy, code=5)[1]
    run("group", "copy", copy, copy, code=2)


def test_groups_are_deleted_and_their_offsets_told(run: Run, group: str, ten: str) -> None:
    run("group", "copy", group, f"{group}-2")
    assert f"would delete group {group}, with 1 offset\n" in run("group", "delete", group, "--dry-run")[0]
    assert "--yes" in run("group", "delete", group, code=5)[1]
    said = run("group", "rm", group, f"{group}-2", "--yes")[0]
    assert [ten, "0", "4"] in [line.split() for line in said.splitlines()]
    assert f"deleted group {group}, with 1 offset\n" in said
    again = f"tailrace group reset {group} --topic {ten}:0 --to 4"
    assert again in said
    run("group", "show", group, code=4)
    run(*again.split()[1:], "--yes")
    assert committed(run, group) == {0: 4}


def test_some_offsets_are_deleted_and_the_others_stay(
    run: Run, new_topic: NewTopic, ten: str, group: str, commit: Any
) -> None:
    other = new_topic(partitions=2)
    commit(group, other, 0, 0, metadata="kept")
    assert "1 offset of" in run("group", "delete", group, "--offsets", f"{other}:1", "--dry-run")[0]
    said = run("group", "delete", group, "--offsets", f"{other}:1", "--yes")[0]
    assert f"deleted 1 offset of group {group}" in said
    rows = shown(run, group)["partitions"]
    assert {(row["topic"], row["partition"]): row["committed"] for row in rows} == {
        (ten, 0): 4,
        (other, 0): 0,
        (other, 1): None,
    }
    assert f"{group}.before" not in run("group", "list", "--json")[0]
    assert "has no offset in" in run("group", "delete", group, "--offsets", f"{other}:1", code=4)[1]
    run("group", "delete", group, "--offsets", ten, "--offsets", other, "--yes")
    run("group", "show", group, code=4)


def test_a_reset_and_a_copy_are_told_to_programs_in_json(run: Run, group: str, ten: str, unused: str) -> None:
    dry = json.loads(run("group", "reset", group, "--shift", -1, "--dry-run", "--json")[0])
    assert (dry["group"], dry["dry_run"], committed(run, group)) == (group, True, {0: 4})
    row = {"topic": ten, "partition": 0, "from": 4, "to": 1, "asked": 1, "changed": True, "skipped": -3}
    done = json.loads(run("group", "reset", group, "--shift", -3, "--yes", "--json")[0])
    assert done == {"group": group, "dry_run": False, "partitions": [row]}
    assert committed(run, group) == {0: 1}
    copied = json.loads(run("group", "copy", group, f"{unused}-copy", "--json")[0])
    offsets = [{"topic": ten, "partition": 0, "offset": 1, "metadata": ""}]
    assert copied == {"from": group, "to": f"{unused}-copy", "dry_run": False, "offsets": offsets}


# The consumer protocol (KIP-848)


def test_a_consumer_group_is_shown_with_epochs_and_targets(run: Run, group: str, ten: str, join: Join) -> None:
    found = shown(run, group)
    assert (found["epoch"], found["assignment_epoch"], found["phase"]) == (None, None, None)
    join(group, ten, client_id="worker", group_protocol="consumer", heartbeat_interval_ms=None)
    found = shown(run, group)
    assert (found["kind"], found["state"], found["assignor"], found["lag"]) == ("consumer", "stable", "uniform", 6)
    assert found["epoch"] == found["assignment_epoch"] > 0
    assert found["phase"] == "stable"
    (member,) = found["members"]
    assert (member["protocol"], member["epoch"]) == ("consumer", found["epoch"])
    assert member["target"] == member["partitions"] == [{"topic": ten, "partition": 0}]
    assert member["revoking"] == []
    assert f"consumer, epoch {found['epoch']}, assignor uniform" in run("group", "show", group)[0]


def test_groups_are_listed_by_kind(run: Run, group: str, ten: str, unused: str, join: Join) -> None:
    join(f"{unused}-new", ten, group_protocol="consumer", heartbeat_interval_ms=None)

    def names(*kinds: str) -> set[str]:
        options = [word for kind in kinds for word in ("--kind", kind)]
        return {row["name"] for row in json.loads(run("group", "list", "--json", *options)[0])} & {
            group,
            f"{unused}-new",
        }

    assert names("simple") == {group}
    assert names("consumer") == {f"{unused}-new"}
    assert names("consumer", "simple") == {group, f"{unused}-new"}
    assert names("classic", "share") == set()
    assert "--kind takes" in run("group", "list", "--kind", "lazy", code=2)[1]


def test_configs_of_a_group_are_changed_and_taken_back(run: Run, unused: str) -> None:
    name = "consumer.session.timeout.ms"
    said = run("group", "set", unused, "--set", f"{name}=50s", "--dry-run")[0]
    assert said.splitlines() == [f"would change group {unused}", f"  {name}: 45000 → 50000"]
    run("group", "set", unused, "--set", f"{name}=50s")
    told = json.loads(run("group", "set", unused, "--unset", name, "--json")[0])
    assert told["changes"] == [{"name": name, "before": "50000", "after": "45000"}]
    assert "allow 45000 to 60000" in run("group", "set", unused, "--set", f"{name}=5s", code=5)[1]
    assert "there is no group config" in run("group", "set", unused, "--set", "retention.ms=5", code=2)[1]
    assert "nothing to change" in run("group", "set", unused, code=2)[1]
