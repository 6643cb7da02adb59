"""Quotas: whose counts, and how long one has to wait who has done more. The clock is a number."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.quotas.client_quotas import (
    BUCKETS_MAX,
    CONNECTION_CREATION_RATE,
    CONNECTION_WAIT_MS_MAX,
    DEBT_S_MAX,
    ClientQuotas,
    Entity,
    QuotaMeter,
)

KEY = "producer_byte_rate"
WINDOW_S = 10

# Kafka's order, the most exact first.
LEVELS: list[Entity] = [
    (("client-id", "c"), ("user", "u")),
    (("client-id", None), ("user", "u")),
    (("user", "u"),),
    (("client-id", "c"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", "c"),),
    (("client-id", None),),
]


def meter(*settings: tuple[Entity, str, float], window_s: float = WINDOW_S) -> QuotaMeter:
    quotas = ClientQuotas()
    for entity, key, value in settings:
        quotas.set(entity, key, value)
    return QuotaMeter(quotas, window_s)


@given(st.sets(st.integers(0, len(LEVELS) - 1)))
def test_of_all_that_fit_the_most_exact_counts(levels: set[int]) -> None:
    quotas = ClientQuotas()
    for level in levels:
        quotas.set(LEVELS[level], KEY, 100 + level)
        quotas.set(LEVELS[level], "another", 1)
    found = quotas.limit(KEY, "u", "c")
    assert (found.rate if found else None) == (100 + min(levels) if levels else None)
    others = quotas.limit(KEY, "v", "d")
    fit = levels & {4, 5, 7}
    assert (others.rate if others else None) == (100 + min(fit) if fit else None)


def test_a_quota_of_one_kind_says_nothing_of_another() -> None:
    quotas = meter((LEVELS[0], "consumer_byte_rate", 5), (LEVELS[7], KEY, 7)).quotas
    limit = quotas.limit(KEY, "u", "c")
    assert limit is not None
    assert limit.rate == 7
    assert quotas.limit("request_percentage", "u", "c") is None


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        (LEVELS[5], {("u", "c"), ("u", "d")}),  # the default of users is for each user
        (LEVELS[4], {("u", "c")}),
        (LEVELS[7], {("u", "c"), ("v", "c")}),
        (LEVELS[2], {("u", "c"), ("u", "d")}),
    ],
)
def test_who_shares_what_an_entity_allows(entity: Entity, shared: set[tuple[str, str]]) -> None:
    for client in itertools.product("uv", "cd"):
        one = meter((entity, KEY, 100))
        one.charge(KEY, "u", "c", 100 * WINDOW_S, 0)
        assert (one.charge(KEY, *client, 100, 0) > 0) == (client in shared)


def test_a_window_may_be_used_at_once_and_what_is_more_is_waited_off() -> None:
    one = meter((LEVELS[6], KEY, 100))
    assert one.charge(KEY, "u", "c", 1000, 0) == 0
    assert one.charge(KEY, "u", "c", 50, 0) == 500
    assert one.charge(KEY, "u", "c", 50, 0.5) == 500
    assert one.charge(KEY, "u", "c", 1000, 100) == 0, "it is full again, and no fuller"
    assert one.charge(KEY, "u", "c", 1, 100) == 10
    assert one.throttled == {KEY: 3}


def test_without_a_quota_nobody_waits_and_nothing_is_kept() -> None:
    one = meter()
    assert one.charge(KEY, "u", "c", 1e18, 0) == 0
    assert not one._buckets


def test_a_quota_that_changes_or_goes_forgets_what_was_owed() -> None:
    one = meter((LEVELS[6], KEY, 100))
    assert one.charge(KEY, "u", "c", 1e5, 0) > 0
    one.quotas.set(LEVELS[6], KEY, 101)
    assert one.charge(KEY, "u", "c", 1, 0) == 0
    one.quotas.set(LEVELS[6], KEY, None)
    assert one.charge(KEY, "u", "c", 1e9, 0) == 0
    assert not one.quotas.values, "the one test of the hot path"


def test_no_debt_takes_longer_than_an_hour() -> None:
    one = meter((LEVELS[6], KEY, 1))
    for _ in range(3):
        assert one.charge(KEY, "u", "c", 1e12, 0) == DEBT_S_MAX * 1000


@given(
    st.floats(1, 1e6),
    st.integers(0, 20),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 30)), min_size=1, max_size=30),
)
def test_who_waits_as_told_never_does_more_than_the_rate_and_a_window(
    rate: float, window_s: int, requests: list[tuple[float, float]]
) -> None:
    one = meter((LEVELS[6], KEY, rate), window_s=window_s)
    now = done = 0.0
    for amount, pause in requests:
        amount = min(amount, rate * 1000)  # a debt within the limit
        now += pause
        done += amount
        now += one.charge(KEY, "u", "c", amount, now) / 1000
        assert done <= rate * (now + window_s + 0.0005) * 1.000001 + 1, "but for half a millisecond"


def test_what_one_request_may_have() -> None:
    one = meter((LEVELS[6], KEY, 100))
    assert one.at_once(KEY, "u", "c") == 1000
    assert one.at_once(KEY, "u", "d") == float("inf")


def test_client_ids_that_are_made_up_take_no_more_memory() -> None:
    one = meter((LEVELS[7], KEY, 100))
    for number in range(3 * BUCKETS_MAX):
        one.charge(KEY, "u", f"client-{number}", 2000, number / 1000)
    assert len(one._buckets) <= BUCKETS_MAX
    assert one.charge(KEY, "u", f"client-{3 * BUCKETS_MAX - 1}", 0, 3 * BUCKETS_MAX / 1000) > 0, "the latest are known"


def test_long_ones_take_no_more_either_and_are_told_apart() -> None:
    one = meter((LEVELS[7], KEY, 100))
    for end in ("a", "b"):
        assert one.charge(KEY, "u", "x" * 30_000 + end, 2000, 0) == 10_000, "each has its own"
    assert one.charge(KEY, "u", "x" * 30_000 + "a", 100, 0) == 11_000
    assert len(str(one._buckets.keys())) < 1000


def test_those_that_say_nothing_are_forgotten_first() -> None:
    one = meter((LEVELS[7], KEY, 100))
    one.charge(KEY, "u", "debtor", 1e5, 0)
    for number in range(2 * BUCKETS_MAX):
        one.charge(KEY, "u", f"client-{number}", 1, number / 1000)
    assert one.charge(KEY, "u", "debtor", 0, 20) > 0


# Connections


def test_connections_of_an_address_are_let_in_at_its_rate() -> None:
    one = meter(((("ip", "1.2.3.4"),), CONNECTION_CREATION_RATE, 2))
    assert [one.connect("1.2.3.4", 0) for _ in range(22)] == [0] * 20 + [500, 500], "those who wait are not counted"
    assert one.connect("1.2.3.4", 0.5) == 0
    assert one.connect("1.2.3.4", 0.5) == 500
    assert one.connect("4.3.2.1", 0.5) == 0, "another one has no quota"


def test_the_default_is_for_each_address() -> None:
    one = meter(((("ip", None),), CONNECTION_CREATION_RATE, 1), ((("ip", "::1"),), CONNECTION_CREATION_RATE, 5))
    assert sum(one.connect("a", 0) == 0 for _ in range(100)) == 10
    assert sum(one.connect("b", 0) == 0 for _ in range(100)) == 10
    assert sum(one.connect("::1", 0) == 0 for _ in range(100)) == 50


def test_there_is_room_for_one_connection_whatever_the_window() -> None:
    one = meter(((("ip", None),), CONNECTION_CREATION_RATE, 1), window_s=0)
    assert one.connect("a", 0) == 0
    assert 0 < one.connect("a", 0) <= CONNECTION_WAIT_MS_MAX
    assert one.connect("a", 1) == 0
