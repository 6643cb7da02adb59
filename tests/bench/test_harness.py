"""What a run says of us is its verdicts, so these are tested; the numbers are the machine's."""

import pytest

from bench.harness import Bench, Demand, Figure, Sample, compare, percentile
from bench.place import Place


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


def test_a_percentile_is_a_value_that_was_there() -> None:
    values = [float(value) for value in range(1000)]
    assert [percentile(values, percent) for percent in (50, 99, 99.9)] == [500, 990, 999]
    assert percentile([7.0], 99.9) == 7.0
