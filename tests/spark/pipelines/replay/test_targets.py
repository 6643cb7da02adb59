"""Where a replay may write, without Spark."""

from pathlib import Path
from typing import Any

import pytest

from tailrace.spark import Json, Parquet, Pipeline, Topic, pipeline
from tailrace.spark.pipelines.replay.targets import check_place, clear
from tailrace.spark.pipelines.sinks import Sink
from tailrace.spark.pipelines.state.state import State
from tailrace.spark.source.options import BadOptions


def live(path: Path) -> Pipeline:
    decoder = Json("id INT", corrupt=Parquet(str(path / "out/bad")))

    @pipeline(source="orders", decode=decoder, sink=Parquet(str(path / "out/live")))
    def plain(orders: Any) -> Any:
        return orders

    return plain


def check(path: Path, sink: Sink, overwrite: bool = False) -> None:
    check_place(live(path), sink, State(path / "out/state"), overwrite=overwrite)


@pytest.mark.parametrize(
    "taken", ["out/live", "out/bad", "out/state", "out", "out/live/day=1", "other/../out/live", "."]
)
def test_what_live_writes_and_keeps_is_left_alone(tmp_path: Path, taken: str) -> None:
    for path in (str(tmp_path / taken), f"file://{tmp_path / taken}"):
        with pytest.raises(BadOptions, match="a replay goes into another place"):
            check(tmp_path, Parquet(path), overwrite=True)


def test_a_link_is_where_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "out" / "live").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "out" / "live")
    with pytest.raises(BadOptions, match="where the live pipeline writes"):
        check(tmp_path, Parquet(str(tmp_path / "link")))


def test_a_place_beside_is_fine_while_it_is_empty(tmp_path: Path) -> None:
    place = tmp_path / "out" / "again"
    check(tmp_path, Parquet(str(place)))
    place.mkdir(parents=True)
    check(tmp_path, Parquet(str(place)))
    (place / "part-0").touch()
    with pytest.raises(BadOptions, match="has something in it"):
        check(tmp_path, Parquet(str(place)))
    check(tmp_path, Parquet(str(place)), overwrite=True)
    clear(Parquet(str(place)))
    assert not place.exists()


def test_topics_that_are_read_or_written_are_refused(tmp_path: Path) -> None:
    check(tmp_path, Topic("orders-again"))
    with pytest.raises(BadOptions, match="would change what it replays"):
        check(tmp_path, Topic("orders"))
    with pytest.raises(BadOptions, match="cannot be overwritten"):
        check(tmp_path, Topic("orders-again"), overwrite=True)


def test_what_lies_elsewhere_cannot_be_deleted(tmp_path: Path) -> None:
    check(tmp_path, Parquet("s3://bucket/again"))
    with pytest.raises(BadOptions, match="cannot be deleted from here"):
        clear(Parquet("s3://bucket/again"))
