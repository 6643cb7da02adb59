"""What a run says of us is its verdicts, so these are tested; the numbers are the machine's."""

import pytest

from bench.harness.measure import Bench, Demand, Figure, Leeway, Sample, compare, is_clear, percentile
from bench.harness.place import Place


@pytest.mark.parametrize(
    ("bound", "value", "verdict"),
    [
        ("most", 0.6, "missed"),
        ("most", 0.5, "ok"),
        ("most", 0.3, "ok"),
        ("most", 0.25, "aim"),
        ("least", 0.2, "missed"),
        ("least", 0.5, "aim"),
    ],
)
def test_a_ratio_is_missed_ok_or_as_good_as_aimed_at(bound: str, value: float, verdict: str) -> None:
    limit, aim = (0.5, 0.25) if bound == "most" else (0.25, 0.5)
    demand = Demand("ratio", bound, limit, aim=aim)  # type: ignore[arg-type]
    assert compare("name", "title", "µs", [value], [1.0], "theirs", demanded=demand).verdict == verdict


def test_without_an_aim_what_is_met_is_ok() -> None:
    assert Demand("ratio", "most", 2).verdict(Sample.of([1.0])) == "ok"


def test_without_a_demand_there_is_no_verdict() -> None:
    assert Figure("name", "title", "µs", Sample.of([1.0])).verdict == "information"


def test_a_ratio_is_the_median_of_the_rounds_and_not_that_of_medians() -> None:
    figure = compare("name", "title", "µs", [1.0, 10.0, 100.0], [2.0, 10.0, 50.0], "theirs")
    assert figure.compared is not None
    assert figure.compared.median == 1.0
    assert figure.compared.low == 0.75


def test_an_absolute_figure_is_judged_by_its_better_quartile() -> None:
    sample = Sample.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert Demand("ours", "most", 2.0).verdict(sample) == "ok"
    assert Demand("ours", "least", 4.0).verdict(sample) == "ok"
    assert Demand("ours", "least", 4.1).verdict(sample) == "missed"


def test_sides_take_turns_and_every_other_round_goes_backwards(tmp_path: object) -> None:
    order: list[str] = []

    def side(name: str) -> str:
        order.append(name)
        return name

    bench = Bench(Place(str(tmp_path)), True, lambda _: None)
    values = bench.take_turns("what", 2, lambda: side("a"), lambda: side("b"))
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert values == [["a", "a"], ["b", "b"]]


def test_who_has_no_patience_left_begins_no_further_round_but_has_two(tmp_path: object) -> None:
    bench = Bench(Place(str(tmp_path)), True, lambda _: None, patience_s=0)
    assert bench.take_turns("what", 9, lambda: 1) == [[1, 1]]


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.1, 1.2, 1.3], True),  # 0.23 from the limit, and 0.1 between the quartiles
        ([0.9, 1.0, 1.1], False),  # 0.03
        ([0.84, 0.94, 1.04], False),  # what is missed by as little is no clearer
        ([0.97, 0.97, 0.97], True),
        ([0.9, 1.0, 1.1] * 16, True),  # the more rounds, the clearer
    ],
)
def test_what_is_close_is_not_clear(ratios: list[float], expected: bool) -> None:
    assert is_clear(Demand("ratio", "least", 0.97), ratios, [1.0] * len(ratios)) is expected


def test_what_is_close_has_further_rounds_until_it_is_clear(tmp_path: object) -> None:
    bench = Bench(Place(str(tmp_path)), False, lambda _: None, leeway=Leeway(60))
    values = bench.take_turns("what", 3, lambda: 1, lambda: 2, is_clear=lambda sides: len(sides[0]) == 5)
    assert values == [[1] * 5, [2] * 5]
    assert 0 < bench.leeway.seconds < 60


def test_but_no_more_than_three_times_as_many_and_none_without_leeway(tmp_path: object) -> None:
    for seconds, rounds in ((60.0, 9), (0.0, 3)):
        bench = Bench(Place(str(tmp_path)), False, lambda _: None, leeway=Leeway(seconds))
        assert bench.take_turns("what", 3, lambda: 1, is_clear=lambda _: False) == [[1] * rounds]


def test_a_percentile_is_a_value_that_was_there() -> None:
    values = [float(value) for value in range(1000)]
    assert [percentile(values, percent) for percent in (50, 99, 99.9)] == [500, 990, 999]
    assert percentile([7.0], 99.9) == 7.0
