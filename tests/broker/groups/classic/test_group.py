"""One classic group: joins, syncs, silence and time go in; states, answers and errors come out."""

import pytest
from broker.groups.lone_group import REBALANCE_MS, SESSION_MS, LoneGroup, Someone

from tailrace.broker.groups.classic.group import HELD_BYTES_MAX, PENDING_MAX
from tailrace.broker.groups.classic.members import Joined, JoinedMember, Synced
from tailrace.broker.groups.classic.snapshots import saved_group
from tailrace.broker.groups.classic.state import State
from tailrace.protocol.errors import ErrorCode

REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
FENCED = ErrorCode.FENCED_INSTANCE_ID


def beat(lone: LoneGroup, *everyone: Someone, ms: int, every_ms: int = SESSION_MS // 2) -> None:
    """Time passes in which these are heard of."""
    while ms > 0:
        step = min(ms, every_ms)
        lone.wait(step)
        ms -= step
        for one in everyone:
            one.heartbeat()


# Joining


def test_the_first_member_leads_and_learns_of_everybody() -> None:
    lone = LoneGroup()
    a, b = lone.someone("a"), lone.someone("b")
    joined = a.join().answer
    assert joined == Joined(1, "consumer", "range", "a-1", "a-1", (JoinedMember("a-1", None, b"range of a"),))
    assert lone.group.state is State.COMPLETING
    waiting = b.join()
    assert waiting.is_waiting, "a has to join again first"
    assert lone.group.state is State.PREPARING
    assert [one.member_id for one in a.join().answer.members] == ["a-1", "b-2"]
    assert waiting.answer == Joined(2, "consumer", "range", "a-1", "b-2")


def test_a_newcomer_is_told_its_id_and_comes_again_with_it() -> None:
    """Pitfall 25."""
    lone = LoneGroup()
    a = lone.someone("a", must_know_id=True)
    assert a.join().answer == ErrorCode.MEMBER_ID_REQUIRED
    assert (a.member_id, lone.group.pending, lone.group.members) == ("a-1", {"a-1"}, {})
    assert lone.group.state is State.EMPTY
    assert a.join().answer.member_id == "a-1"
    assert lone.group.pending == set()


def test_one_that_was_told_its_id_and_never_comes_back_is_forgotten() -> None:
    lone = LoneGroup()
    a = lone.someone("a", must_know_id=True)
    a.join()
    lone.wait(SESSION_MS)
    assert (lone.group.pending, len(lone.timers)) == (set(), 0)
    assert a.join().answer == UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members_but_not_longer_than_their_session() -> None:
    lone = LoneGroup()
    (a,) = lone.stable("a")
    b = lone.someone("b", must_know_id=True)
    b.join()
    waiting = a.join(metadata=b"new")
    assert waiting.is_waiting
    lone.wait(SESSION_MS - 1)
    assert waiting.is_waiting
    lone.wait(1)
    assert waiting.answer.generation == 2


def test_one_that_was_told_its_id_can_leave_before_it_comes_back() -> None:
    lone = LoneGroup()
    (a,) = lone.stable("a")
    b = lone.someone("b", must_know_id=True)
    b.join()
    waiting = a.join(metadata=b"new")
    assert b.leave() is None
    assert waiting.answer.generation == 2
    assert b.join().answer == UNKNOWN_MEMBER_ID


def test_no_more_than_so_many_can_be_about_to_join() -> None:
    lone = LoneGroup()
    for n in range(PENDING_MAX):
        lone.group.pending.add(str(n))
    assert lone.someone("a", must_know_id=True).join().answer == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_id_that_was_given_to_a_dynamic_member_is_not_that_of_a_static_one() -> None:
    """Else two members would have one instance id, and the first to leave would take it from the other."""
    lone = LoneGroup()
    (static,) = lone.stable("static")
    b = lone.someone("b", must_know_id=True)
    b.join()
    b.instance_id = "static"
    assert b.join().answer == FENCED
    b.instance_id = "other"
    assert b.join().answer == UNKNOWN_MEMBER_ID
    assert static.heartbeat() is None


@pytest.mark.parametrize("changes", [{"protocols": ()}, {"protocol_type": ""}])
def test_a_join_without_protocols_is_refused(changes: dict[str, object]) -> None:
    lone = LoneGroup()
    assert lone.someone("a").join(**changes).answer == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (lone.group.state, lone.group.members) == (State.EMPTY, {})


def test_whoever_knows_no_protocol_that_all_the_others_know_is_refused() -> None:
    """Pitfall 30."""
    lone = LoneGroup()
    lone.stable("a", "b", protocols=("range", "sticky"))
    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert lone.someone("c", protocols=("roundrobin",)).join().answer == refused
    assert lone.someone("c", protocol_type="connect").join().answer == refused
    assert lone.group.state is State.STABLE
    assert lone.someone("c", protocols=("roundrobin", "sticky")).join().is_waiting
    assert lone.someone("d", protocols=("range",)).join().answer == refused, "c does not know it"


def test_a_group_that_is_empty_again_takes_any_protocol() -> None:
    lone = LoneGroup()
    (a,) = lone.stable("a")
    a.leave()
    joined = lone.someone("b", protocol_type="connect", protocols=("compatible",)).join().answer
    assert (joined.protocol_type, joined.protocol, joined.generation) == ("connect", "compatible", 3)


@pytest.mark.parametrize(
    ("likes", "chosen"),
    [
        ([("x", "y"), ("y", "x"), ("y", "x")], "y"),
        ([("x", "y"), ("x", "y"), ("y", "x")], "x"),
        ([("z", "y"), ("x", "y"), ("x", "y", "z")], "y"),  # the only one that all know
        ([("x", "x", "y"), ("y", "x"), ("y",)], "y"),
    ],
)
def test_of_the_protocols_that_all_know_the_one_is_chosen_that_most_like_best(
    likes: list[tuple[str, ...]], chosen: str
) -> None:
    """Pitfall 30."""
    lone = LoneGroup(delay_ms=3_000)
    members = [lone.someone(f"m{n}", protocols=protocols) for n, protocols in enumerate(likes)]
    joins = [one.join() for one in members]
    lone.wait(6_000)
    assert {join.answer.protocol for join in joins} == {chosen}
    metadata = [one.metadata for one in joins[0].answer.members]
    assert metadata == [b"%s of m%d" % (chosen.encode(), n) for n in range(len(likes))]


def test_members_can_move_to_another_protocol_one_by_one() -> None:
    """As a group is upgraded from eager to cooperative assignment."""
    lone = LoneGroup()
    a, b = lone.stable("a", "b", protocols=("range",))
    for one, other in ((a, b), (b, a)):
        waiting = one.join(protocols=("cooperative", "range"))
        assert other.heartbeat() == REBALANCE_IN_PROGRESS
        other.join()
        assert waiting.answer.protocol == ("range" if one is a else "cooperative")
        lone.share_out(a, b)
    waiting = a.join(protocols=("cooperative",))
    b.join()
    assert waiting.answer.protocol == "cooperative"
    assert lone.someone("c", protocols=("range",)).join().answer == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_nobody_but_those_it_has() -> None:
    lone = LoneGroup(size_max=2)
    a, _ = lone.stable("a", "static")
    assert lone.someone("c").join().answer == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(lone.someone("d", instance_id="static").join().answer, Joined)
    assert a.join(metadata=b"new").is_waiting


def test_a_full_group_takes_one_of_two_that_were_told_their_ids() -> None:
    lone = LoneGroup(size_max=1)
    a, b = lone.someone("a", must_know_id=True), lone.someone("b", must_know_id=True)
    a.join()
    b.join()
    a.join()
    assert b.join().answer == ErrorCode.GROUP_MAX_SIZE_REACHED


# The first rebalance waits for more members


def test_the_first_rebalance_waits_as_long_as_newcomers_come() -> None:
    """Pitfall 26."""
    lone = LoneGroup(delay_ms=3_000)
    joins = []
    for n in range(4):
        joins.append(lone.someone(f"m{n}").join())
        lone.wait(2_000)
    assert all(join.is_waiting for join in joins), "8 s have gone; somebody came in each 3 s"
    lone.wait(4_000)
    assert {join.answer.generation for join in joins} == {1}


def test_the_first_rebalance_waits_no_longer_than_the_delay_for_nobody() -> None:
    lone = LoneGroup(delay_ms=3_000)
    join = lone.someone("a").join()
    lone.wait(2_999)
    assert join.is_waiting
    lone.wait(1)
    assert join.answer.generation == 1


def test_the_first_rebalance_takes_no_longer_than_its_timeout() -> None:
    lone = LoneGroup(delay_ms=3_000)
    joins = []
    for n in range(10):
        joins.append(lone.someone(f"m{n}", rebalance_ms=8_000).join())
        lone.wait(1_000)
        assert joins[0].is_waiting == (n < 7)


def test_a_delay_longer_than_the_timeout_of_a_rebalance_is_waited_for_once() -> None:
    lone = LoneGroup(delay_ms=3_000)
    join = lone.someone("a", rebalance_ms=1_000).join()
    lone.wait(1)
    lone.someone("b", rebalance_ms=1_000).join()
    lone.wait(2_998)
    assert join.is_waiting
    lone.wait(1)
    assert join.answer.generation == 1


def test_if_all_leave_before_the_first_rebalance_is_over_the_group_is_empty() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a = lone.someone("a", must_know_id=True)
    a.join()
    join = a.join()
    a.leave()
    assert join.answer == UNKNOWN_MEMBER_ID
    assert lone.group.state is State.PREPARING
    lone.wait(3_000)
    assert (lone.group.state, lone.group.generation) == (State.EMPTY, 1)


def test_later_rebalances_do_not_wait() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a = lone.someone("a")
    a.join()
    lone.wait(3_000)
    lone.share_out(a)
    assert isinstance(a.join(metadata=b"new").answer, Joined)


# Joining again


def test_a_follower_that_says_nothing_new_gets_the_generation_there_is() -> None:
    """Pitfall 27."""
    lone = LoneGroup()
    _, b = lone.stable("a", "b")
    joined = b.join().answer
    assert joined == Joined(2, "consumer", "range", "a-1", "b-2")
    assert lone.group.state is State.STABLE


def test_a_leader_that_joins_again_has_the_work_shared_out_anew() -> None:
    """Pitfall 27: it does so when partitions were added."""
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    waiting = a.join()
    assert waiting.is_waiting
    assert b.heartbeat() == REBALANCE_IN_PROGRESS
    assert b.join().answer.generation == waiting.answer.generation == 3


def test_a_follower_that_wants_something_else_has_the_work_shared_out_anew() -> None:
    """Pitfall 27."""
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    assert b.join(metadata=b"other topics").is_waiting
    assert a.join().answer.members[1].metadata == b"range of bother topics"


def test_whose_answer_was_lost_gets_it_again_until_the_work_is_shared_out() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a, b = lone.someone("a"), lone.someone("b")
    first = [a.join(), b.join()]
    lone.wait(6_000)
    assert [a.join().answer, b.join().answer] == [join.answer for join in first]
    assert lone.group.state is State.COMPLETING
    lone.share_out(a, b)


def test_a_member_that_changes_its_protocols_before_the_sync_causes_a_rebalance() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a, b = lone.someone("a"), lone.someone("b")
    a.join()
    b.join()
    lone.wait(6_000)
    synced = b.sync()
    waiting = a.join(metadata=b"new")
    assert (synced.answer, lone.group.state) == (REBALANCE_IN_PROGRESS, State.PREPARING)
    b.join()
    assert waiting.answer.generation == 2


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    first = b.join(metadata=b"new")
    second = b.join()
    assert (first.answer, second.is_waiting) == (REBALANCE_IN_PROGRESS, True)
    a.join()
    assert second.answer.generation == 3


def test_an_unknown_member_cannot_join() -> None:
    lone = LoneGroup()
    lone.stable("a")
    b = lone.someone("b")
    b.member_id = "nobody"
    assert b.join().answer == UNKNOWN_MEMBER_ID
    b.instance_id = "nobody"
    assert b.join().answer == UNKNOWN_MEMBER_ID


# A rebalance


def test_whoever_does_not_join_in_time_is_out() -> None:
    lone = LoneGroup()
    a, b, c = lone.stable("a", "b", "c")
    waiting = b.join(metadata=b"new")
    beat(lone, a, c, ms=REBALANCE_MS - 1)
    assert waiting.is_waiting
    lone.wait(1)
    assert [one.member_id for one in waiting.answer.members] == [b.member_id], "b leads, and is alone"
    assert [a.heartbeat(), c.heartbeat(), a.join().answer] == [UNKNOWN_MEMBER_ID] * 3


def test_a_rebalance_takes_as_long_as_the_most_patient_member_allows() -> None:
    lone = LoneGroup(delay_ms=100)
    a, b = lone.someone("a", rebalance_ms=20_000), lone.someone("b", rebalance_ms=90_000)
    a.join()
    b.join()
    lone.wait(200)
    lone.share_out(a, b)
    waiting = a.join()
    beat(lone, b, ms=89_999)
    assert waiting.is_waiting
    lone.wait(1)
    assert waiting.answer.generation == 2


def test_during_a_rebalance_members_are_told_to_join_and_may_commit() -> None:
    """Pitfall 28."""
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    lone.someone("c").join()
    assert [a.heartbeat(), b.heartbeat()] == [REBALANCE_IN_PROGRESS] * 2
    assert a.sync({}).answer == REBALANCE_IN_PROGRESS
    assert a.commit() is None


def test_until_the_work_is_shared_out_nobody_may_commit() -> None:
    lone = LoneGroup()
    a = lone.someone("a")
    a.join()
    assert lone.group.state is State.COMPLETING
    assert a.commit() == REBALANCE_IN_PROGRESS
    assert a.heartbeat() is None


def test_a_session_that_ends_completes_a_rebalance_of_those_who_have_joined() -> None:
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    waiting = a.join()
    lone.wait(SESSION_MS)
    assert waiting.answer.generation == 3
    assert not b.is_member


def test_generations_only_grow() -> None:
    lone = LoneGroup()
    seen = []
    for _ in range(3):
        (a,) = lone.stable("a")
        seen.append(lone.group.generation)
        a.leave()
        seen.append(lone.group.generation)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert [value.generation for value in lone.saved] == seen


# Sharing out


def test_followers_wait_for_the_leader_and_get_what_it_says() -> None:
    """Pitfall 28."""
    lone = LoneGroup(delay_ms=3_000)
    a, b, c = lone.someone("a"), lone.someone("b"), lone.someone("c")
    for one in (a, b, c):
        one.join()
    lone.wait(6_000)
    waiting = b.sync()
    assert waiting.is_waiting
    led = a.sync({b.member_id: b"half", "nobody": b"rest"})
    assert waiting.answer == Synced("consumer", "range", b"half")
    assert led.answer.assignment == c.sync().answer.assignment == b"", "of which nothing was said"
    assert lone.group.state is State.STABLE
    assert b.sync().answer.assignment == b"half", "as often as it asks"


def test_a_sync_in_another_protocol_than_the_chosen_one_is_refused() -> None:
    lone = LoneGroup()
    a = lone.someone("a")
    a.join()
    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.sync({}, protocol_type="connect").answer == refused
    assert a.sync({}, protocol="sticky").answer == refused
    assert isinstance(a.sync({}, protocol_type="consumer", protocol="range").answer, Synced)


def test_a_second_sync_of_the_same_member_takes_the_place_of_the_first() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a, b = lone.someone("a"), lone.someone("b")
    a.join()
    b.join()
    lone.wait(6_000)
    first, second = b.sync(), b.sync()
    assert first.answer == REBALANCE_IN_PROGRESS
    a.sync({b.member_id: b"half"})
    assert second.answer.assignment == b"half"


def test_a_leader_that_does_not_share_out_in_time_is_out() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a, b = lone.someone("a"), lone.someone("b")
    a.join()
    b.join()
    lone.wait(6_000)
    waiting = b.sync()
    beat(lone, a, ms=REBALANCE_MS - 1)
    assert waiting.is_waiting
    lone.wait(1)
    assert waiting.answer == REBALANCE_IN_PROGRESS
    assert b.join().answer.members == (JoinedMember(b.member_id, None, b"range of b"),)
    assert a.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_follower_that_never_asks_for_its_work_is_out() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a, b = lone.someone("a"), lone.someone("b")
    a.join()
    b.join()
    lone.wait(6_000)
    a.sync({})
    beat(lone, a, b, ms=REBALANCE_MS)
    assert not b.is_member
    assert a.heartbeat() == REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("session_ms", [5_000, 6_000, 10_000])
def test_a_session_and_the_time_to_sync_may_end_together(session_ms: int) -> None:
    """Clients of JoinGroup 0 have one timeout for both. The end of the session begins a rebalance; what was due of the
    one before must not begin another."""
    lone = LoneGroup(delay_ms=3_000)
    a = lone.someone("a", session_ms=session_ms, rebalance_ms=session_ms)
    b = lone.someone("b", session_ms=60_000, rebalance_ms=session_ms)
    a.join()
    b.join()
    lone.wait(6_000)
    assert lone.group.state is State.COMPLETING
    lone.timers.now += session_ms
    lone.ring()
    assert (a.is_member, b.is_member, lone.group.state) == (False, True, State.PREPARING)
    assert b.join().answer.generation == 2


def test_a_session_that_begins_anew_in_the_moment_it_ends_goes_on() -> None:
    """The rebalance ends in the same moment: who has joined it, and lost its connection, has a whole session."""
    lone = LoneGroup()
    a, b = lone.stable("a", "b", rebalance_ms=SESSION_MS)
    join = a.join()
    join.abandon()
    lone.timers.now += SESSION_MS
    lone.ring()
    assert (a.is_member, b.is_member, lone.group.state) == (True, False, State.COMPLETING)


# Keeping in touch


def test_a_member_that_is_heard_of_stays_and_one_that_is_not_is_out() -> None:
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    beat(lone, a, ms=SESSION_MS - 1)
    assert b.is_member
    lone.wait(1)
    assert not b.is_member
    assert (lone.group.state, b.heartbeat()) == (State.PREPARING, UNKNOWN_MEMBER_ID)


def test_a_commit_and_a_sync_are_signs_of_life() -> None:
    lone = LoneGroup()
    (a,) = lone.stable("a")
    for ask in (a.commit, a.sync, a.commit):
        lone.wait(SESSION_MS - 1)
        ask()
    lone.wait(SESSION_MS - 1)
    assert a.is_member


def test_nothing_of_another_generation_is_taken() -> None:
    """Pitfall 28."""
    lone = LoneGroup()
    (a,) = lone.stable("a")
    a.generation += 1
    assert [a.heartbeat(), a.sync({}).answer, a.commit()] == [ILLEGAL_GENERATION] * 3
    a.generation -= 2
    assert [a.heartbeat(), a.sync({}).answer, a.commit()] == [ILLEGAL_GENERATION] * 3
    a.member_id = "nobody"
    assert [a.heartbeat(), a.sync({}).answer, a.commit(), a.leave()] == [UNKNOWN_MEMBER_ID] * 4


def test_only_while_there_are_no_members_may_others_commit() -> None:
    """Pitfall 32."""
    lone = LoneGroup()
    simple = lone.someone("operator")
    assert simple.commit() is None
    (a,) = lone.stable("a")
    assert simple.commit() == UNKNOWN_MEMBER_ID
    a.leave()
    assert simple.commit() is None
    assert a.commit() == UNKNOWN_MEMBER_ID


def test_whoever_waits_for_an_answer_may_be_silent_and_has_a_session_from_then_on() -> None:
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    waiting = b.join(metadata=b"new")
    beat(lone, a, ms=3 * SESSION_MS)
    assert b.is_member
    a.join()
    assert isinstance(waiting.answer, Joined)
    synced = b.sync()
    beat(lone, a, ms=3 * SESSION_MS)
    assert b.is_member
    a.sync({})
    assert isinstance(synced.answer, Synced)
    beat(lone, a, ms=SESSION_MS - 1)
    assert b.is_member
    lone.wait(1)
    assert not b.is_member


def test_a_member_disconnected_while_joining_may_return_within_its_session() -> None:
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    join = b.join(metadata=b"new")
    join.abandon()
    beat(lone, a, ms=SESSION_MS - 1)
    assert b.is_member
    lone.wait(1)
    assert not b.is_member
    assert a.join().answer.generation == 3


def test_a_member_disconnected_while_syncing_may_return_within_its_session() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a, b = lone.someone("a"), lone.someone("b")
    a.join()
    b.join()
    lone.wait(6_000)
    b.sync().abandon()
    beat(lone, a, ms=SESSION_MS)
    assert not b.is_member
    assert a.heartbeat() == REBALANCE_IN_PROGRESS


def test_a_connection_that_is_gone_has_joined_all_the_same() -> None:
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    b.join(metadata=b"new").abandon()
    assert a.join().answer.generation == 3
    lone.wait(SESSION_MS - 1)
    assert b.is_member
    lone.wait(1)
    assert not b.is_member


def test_an_old_connection_that_is_gone_takes_nothing_from_the_new_one() -> None:
    """It came back before the broker saw the old connection close."""
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    old = b.join(metadata=b"new")
    new = b.join()
    old.abandon()
    lone.wait(0)
    a.join()
    assert isinstance(new.answer, Joined)
    synced = b.sync()
    new.abandon()
    old.abandon()
    a.sync({b.member_id: b"half"})
    assert synced.answer.assignment == b"half"


def test_an_old_connection_of_a_static_member_takes_nothing_from_who_took_its_place() -> None:
    lone = LoneGroup()
    a, static = lone.stable("a", "static")
    old = static.join(metadata=b"new")
    other = lone.someone("other", instance_id="static")
    new = other.join()
    assert old.answer == FENCED
    old.abandon()
    a.join()
    assert isinstance(new.answer, Joined)


# Leaving


@pytest.mark.parametrize("state", [State.PREPARING, State.COMPLETING, State.STABLE])
@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("how", ["leaves", "falls silent"])
def test_a_member_that_goes_in_any_state_leaves_the_others_with_a_leader(
    state: State, is_leader: bool, how: str
) -> None:
    lone = LoneGroup()
    a, b, c = lone.stable("a", "b", "c")
    gone, stays = (a, b) if is_leader else (b, a)
    waiting = []
    if state is not State.STABLE:
        waiting = [c.join(metadata=b"new"), stays.join()]
    if state is State.COMPLETING:
        gone.join()
        waiting = [c.sync()] if is_leader else []
    assert lone.group.state is state
    if how == "leaves":
        assert gone.leave() is None
    else:
        beat(lone, c, stays, ms=SESSION_MS)
    assert not gone.is_member
    if state is State.PREPARING:
        assert {join.answer.generation for join in waiting} == {4}
    else:
        assert {one.answer for one in waiting} <= {REBALANCE_IN_PROGRESS}
        assert [c.heartbeat(), stays.heartbeat()] == [REBALANCE_IN_PROGRESS] * 2
        c.join()
        stays.join()
    assert lone.group.leader in (c.member_id, stays.member_id)
    lone.share_out(c, stays)
    assert lone.group.state is State.STABLE


def test_when_the_last_member_leaves_the_group_is_empty_and_saved_so() -> None:
    lone = LoneGroup()
    a, b = lone.stable("a", "b")
    a.leave()
    b.leave()
    assert (lone.group.state, lone.group.leader, lone.group.protocol) == (State.EMPTY, None, None)
    assert (lone.saved[-1].members, lone.saved[-1].protocol_type) == ([], "consumer")
    assert [a.leave(), a.heartbeat(), a.sync().answer, a.join().answer] == [UNKNOWN_MEMBER_ID] * 4


def test_whoever_is_put_out_while_it_waits_is_told() -> None:
    lone = LoneGroup()
    _, b = lone.stable("a", "b")
    waiting = b.join(metadata=b"new")
    b.leave()
    assert waiting.answer == UNKNOWN_MEMBER_ID


# Static members


def test_a_static_member_that_comes_back_gets_its_place_and_the_others_do_not_notice() -> None:
    """Pitfall 29."""
    lone = LoneGroup()
    a, old = lone.stable("a", "static")
    new = lone.someone("static", instance_id="static")
    joined = new.join().answer
    assert joined == Joined(2, "consumer", "range", a.member_id, new.member_id)
    assert (lone.group.state, a.heartbeat()) == (State.STABLE, None)
    assert new.sync().answer.assignment == b"work of static"
    assert [old.heartbeat(), old.sync().answer, old.commit(), old.leave(), old.join().answer] == [FENCED] * 5
    assert [one.member_id for one in lone.saved[-1].members] == [a.member_id, new.member_id]
    assert lone.group.state is State.STABLE


def test_a_static_leader_that_comes_back_is_kept_from_sharing_out_anew() -> None:
    """Before JoinGroup 9 it is told that another one leads."""
    lone = LoneGroup()
    old, b = lone.stable("static", "b")
    new = lone.someone("static", instance_id="static")
    joined = new.join().answer
    assert (joined.leader, joined.members, joined.skip_assignment) == (old.member_id, (), False)
    assert lone.group.leader == new.member_id
    assert (new.sync().answer.assignment, b.heartbeat()) == (b"work of static", None)


def test_a_static_leader_that_comes_back_is_told_to_keep_the_assignment() -> None:
    """Pitfall 32, JoinGroup 9: it leads, so that it looks out for new partitions."""
    lone = LoneGroup()
    lone.stable("static", "b")
    new = lone.someone("static", instance_id="static", can_skip_assignment=True)
    joined = new.join().answer
    assert (joined.leader, joined.skip_assignment) == (new.member_id, True)
    assert {one.instance_id for one in joined.members} == {"static", None}
    assert new.sync().answer.assignment == b"work of static"


def test_a_static_member_that_comes_back_with_another_favourite_begins_a_rebalance() -> None:
    lone = LoneGroup()
    a, _ = lone.stable("a", "static", protocols=("range", "sticky"))
    new = lone.someone("static", instance_id="static", protocols=("sticky",))
    waiting = new.join()
    assert (waiting.is_waiting, lone.group.state) == (True, State.PREPARING)
    a.join()
    assert waiting.answer.protocol == "sticky"


def test_a_static_member_that_comes_back_while_nothing_is_stable_takes_part() -> None:
    lone = LoneGroup()
    a, old = lone.stable("a", "static")
    parked = old.join(metadata=b"new")
    new = lone.someone("static", instance_id="static")
    waiting = new.join()
    assert parked.answer == FENCED
    a.join()
    assert waiting.answer.generation == 3
    synced = new.sync()
    newer = lone.someone("static", instance_id="static")
    again = newer.join()
    assert (synced.answer, lone.group.state) == (FENCED, State.PREPARING)
    a.join()
    assert again.answer.generation == 4
    lone.share_out(a, newer)


def test_a_static_member_that_does_not_join_in_time_stays_as_long_as_its_session() -> None:
    lone = LoneGroup()
    a, static = lone.stable("a", "static", session_ms=40_000, rebalance_ms=20_000)
    waiting = a.join()
    lone.wait(20_000)
    assert [one.member_id for one in waiting.answer.members] == [a.member_id, static.member_id]
    a.sync({})
    assert lone.group.state is State.STABLE
    lone.wait(19_999)
    assert static.is_member
    lone.wait(1)
    assert not static.is_member


def test_a_static_leader_that_does_not_join_in_time_leads_no_more() -> None:
    lone = LoneGroup()
    static, b = lone.stable("static", "b", session_ms=40_000, rebalance_ms=20_000)
    waiting = b.join(metadata=b"new")
    lone.wait(20_000)
    assert (waiting.answer.leader, static.is_member) == (b.member_id, True)
    lone.share_out(b)


@pytest.mark.parametrize("rebalance_ms", [0, 5_000])
def test_where_only_static_members_are_left_and_none_joins_it_is_waited_for_them(rebalance_ms: int) -> None:
    lone = LoneGroup()
    a, static = lone.stable("a", "static", session_ms=40_000, rebalance_ms=rebalance_ms)
    a.leave()
    lone.wait(39_000)
    assert (lone.group.state, static.is_member) == (State.PREPARING, True)
    new = lone.someone("static", instance_id="static")
    assert new.join().answer.generation == 3
    new.sync({})
    lone.wait(SESSION_MS)
    assert lone.group.state is State.EMPTY


def test_static_members_that_never_return_are_removed_also_after_a_long_wait() -> None:
    """Their session had ended while they waited, when that meant nothing; they were members for ever."""
    lone = LoneGroup(delay_ms=3_000)
    a = lone.someone("a")
    statics = [lone.someone(name, instance_id=name) for name in ("s1", "s2")]
    for one in (a, *statics):
        one.join()
    lone.wait(6_000)
    parked = [one.sync() for one in statics]
    beat(lone, a, ms=2 * SESSION_MS)
    a.leave()
    assert {one.answer for one in parked} == {REBALANCE_IN_PROGRESS}
    lone.wait(SESSION_MS - 1)
    assert all(one.is_member for one in statics)
    lone.wait(1)
    assert (lone.group.state, lone.group.members) == (State.EMPTY, {})


def test_an_operator_puts_out_a_static_member_by_its_name() -> None:
    lone = LoneGroup()
    _, static = lone.stable("a", "static")
    operator = lone.someone("operator", instance_id="static")
    assert operator.leave() is None
    assert not static.is_member
    assert operator.leave() == UNKNOWN_MEMBER_ID
    assert static.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_out_its_name_keeps_it() -> None:
    """It had it no more, while the group went on to know it by that name."""
    lone = LoneGroup()
    a, static = lone.stable("a", "static")
    static.instance_id = None
    waiting = static.join(metadata=b"new")
    a.join()
    assert isinstance(waiting.answer, Joined)
    lone.share_out(a, static)
    static.leave()
    new = lone.someone("static", instance_id="static").join()
    a.join()
    assert isinstance(new.answer, Joined)
    assert len(lone.group.members) == 2


def test_nobody_can_have_the_name_of_a_static_member_without_joining() -> None:
    lone = LoneGroup()
    a, static = lone.stable("a", "static")
    a.instance_id = "static"
    assert [a.heartbeat(), a.leave(), a.sync().answer, a.join().answer] == [FENCED] * 4
    assert static.heartbeat() is None


# Saving


def test_what_was_saved_is_the_group() -> None:
    lone = LoneGroup()
    a, static = lone.stable("a", "static")
    again = lone.restarted()
    saved = saved_group(again.group)
    saved.current_state_timestamp = lone.saved[-1].current_state_timestamp
    assert saved == lone.saved[-1]
    for one in (a, static):
        one.lone = again
        assert one.heartbeat() is None
        assert one.sync().answer.assignment == b"work of " + one.name.encode()
    again.wait(SESSION_MS - 1)
    assert len(again.group.members) == 2
    assert a.heartbeat() is None
    again.wait(1)
    assert not static.is_member


def test_after_a_restart_a_follower_joins_again_in_peace_if_it_knows_one_protocol() -> None:
    lone = LoneGroup()
    _, b = lone.stable("a", "b")
    b.lone = lone.restarted()
    assert b.join().answer.generation == 2
    assert b.lone.group.state is State.STABLE
    assert b.join(protocols=("range", "sticky")).is_waiting


def test_an_assignment_that_cannot_be_saved_is_told_to_nobody() -> None:
    lone = LoneGroup(delay_ms=3_000)
    a, b = lone.someone("a"), lone.someone("b")
    a.join()
    b.join()
    lone.wait(6_000)
    lone.can_save = False
    waiting = b.sync()
    assert a.sync({b.member_id: b"half"}).answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (lone.group.state, lone.saved) == (State.PREPARING, [])
    assert a.heartbeat() == REBALANCE_IN_PROGRESS
    lone.can_save = True
    rejoined = a.join()
    b.join()
    assert rejoined.answer.generation == 2
    lone.share_out(a, b)


def test_members_whose_assignment_could_not_be_saved_and_who_never_return_are_out() -> None:
    lone = LoneGroup(delay_ms=3_000)
    members = [lone.someone("static", instance_id="static"), lone.someone("b")]
    for one in members:
        one.join()
    lone.wait(6_000)
    lone.can_save = False
    members[1].sync()
    beat(lone, members[0], ms=2 * SESSION_MS)
    members[0].sync({})
    lone.wait(SESSION_MS)
    assert (lone.group.state, lone.group.members) == (State.EMPTY, {})


def test_a_take_over_that_cannot_be_saved_is_refused_and_succeeds_later() -> None:
    lone = LoneGroup()
    a, _ = lone.stable("a", "static")
    lone.can_save = False
    new = lone.someone("static", instance_id="static")
    assert new.join().answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (lone.group.state, a.heartbeat()) == (State.STABLE, None)
    lone.can_save = True
    assert new.join().answer.generation == 2
    assert lone.saved[-1].members[-1].member_id == new.member_id
    assert new.sync().answer.assignment == b"work of static"


def test_a_take_over_that_cannot_be_saved_or_repeated_ends_with_its_session() -> None:
    lone = LoneGroup()
    a, _ = lone.stable("a", "static")
    lone.can_save = False
    lone.someone("static", instance_id="static").join()
    beat(lone, a, ms=SESSION_MS)
    assert set(lone.group.members) == {a.member_id}


def test_a_group_that_cannot_be_saved_as_empty_is_empty_all_the_same() -> None:
    lone = LoneGroup()
    (a,) = lone.stable("a")
    lone.can_save = False
    assert a.leave() is None
    assert lone.group.state is State.EMPTY
    lone.can_save = True
    (b,) = lone.stable("b")
    assert (b.generation, b.heartbeat()) == (3, None)


# Limits


def test_what_members_hold_is_given_back_when_they_go() -> None:
    lone = LoneGroup()
    a, static = lone.stable("a", "static", protocols=("range", "sticky"))
    assert lone.held.bytes > 0
    lone.someone("static", instance_id="static", protocols=("range", "sticky")).join()
    static.instance_id = None
    a.join(metadata=b"more")
    lone.wait(3 * REBALANCE_MS)
    assert (lone.group.members, lone.held.bytes) == ({}, 0)


def test_while_members_hold_too_much_nobody_can_join() -> None:
    lone = LoneGroup()
    (a,) = lone.stable("a")
    lone.held.bytes += HELD_BYTES_MAX
    assert lone.someone("b").join().answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.heartbeat() is None


def test_whoever_waits_when_the_broker_stops_is_told_to_look_for_another() -> None:
    lone = LoneGroup()
    _, b = lone.stable("a", "b")
    waiting = b.join(metadata=b"new")
    lone.group.refuse_waiting()
    assert waiting.answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert b.is_member
