"""What is kept of finished batches, from checkpoints as Spark writes them."""

import json
import shutil
from pathlib import Path

import pytest

from tailrace.spark.pipelines.history import Batch, Keeper, batches
from tailrace.spark.pipelines.state import AlreadyRunning, State


def write_batch(checkpoint: Path, number: int, *, is_finished: bool = True, conf: str = "a") -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    about = {"batchWatermarkMs": number * 10, "batchTimestampMs": 1000 + number, "conf": {"x": conf}}
    end = {"orders": {"0": number}}
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{json.dumps(about)}\n{json.dumps(end)}")
    if is_finished:
        (checkpoint / "commits" / str(number)).write_text(f'v1\n{{"nextBatchWatermarkMs":{number * 10 + 5}}}')


def forget(checkpoint: Path, number: int) -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name / str(number)).unlink()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint"
    made.mkdir()
    (made / "metadata").write_text('{"id":"first"}')
    return made


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "history"


def ids(found: list[Batch]) -> list[int]:
    return [batch.id for batch in found]


def test_batches_outlive_those_of_the_checkpoint(checkpoint: Path, kept: Path) -> None:
    keeper = Keeper(kept, checkpoint)
    for number in range(7):
        write_batch(checkpoint, number)
        keeper.keep()
        if number > 2:
            forget(checkpoint, number - 3)
    write_batch(checkpoint, 7, is_finished=False)
    found = batches(kept, checkpoint)
    assert ids(found) == list(range(7)), "the one that is not finished is none"
    assert found[2] == Batch(2, ({"orders": {"0": 2}},), 20, 1002, 25, {"x": "a"})
    assert found[2].end == {"orders": {"0": 2}}


def test_what_only_the_checkpoint_has_counts_too(checkpoint: Path, kept: Path) -> None:
    write_batch(checkpoint, 0)
    Keeper(kept, checkpoint).keep()
    write_batch(checkpoint, 1)
    assert ids(batches(kept, checkpoint)) == [0, 1]
    Keeper(kept, checkpoint).keep()
    assert ids(batches(kept, kept / "nothing")) == [0, 1], "a new start keeps it first"


def test_settings_are_written_where_they_change_and_known_everywhere(checkpoint: Path, kept: Path) -> None:
    keeper = Keeper(kept, checkpoint)
    for number, conf in enumerate("aabba"):
        write_batch(checkpoint, number, conf=conf)
        keeper.keep()
    assert [batch.conf["x"] for batch in batches(kept, checkpoint)] == list("aabba")
    assert (kept / "batches.jsonl").read_text().count('"conf"') == 3


@pytest.mark.parametrize("cut", [1, 20, 70])
def test_a_line_that_a_kill_has_cut_is_written_again(checkpoint: Path, kept: Path, cut: int) -> None:
    for number in range(3):
        write_batch(checkpoint, number)
    Keeper(kept, checkpoint).keep()
    path = kept / "batches.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    write_batch(checkpoint, 3)
    Keeper(kept, checkpoint).keep()
    assert ids(batches(kept, kept / "nothing")) == [0, 1, 2, 3]


def test_a_checkpoint_that_was_made_anew_begins_a_history_anew(checkpoint: Path, kept: Path) -> None:
    for number in range(5):
        write_batch(checkpoint, number)
    Keeper(kept, checkpoint).keep()
    shutil.rmtree(checkpoint)
    write_batch(checkpoint, 0)
    (checkpoint / "metadata").write_text('{"id":"second"}')
    Keeper(kept, checkpoint).keep()
    assert ids(batches(kept, checkpoint)) == [0]
    assert (kept / "batches-first.jsonl").exists()


def test_batches_that_spark_forgot_first_are_said(
    checkpoint: Path, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(kept, checkpoint)
    write_batch(checkpoint, 0)
    keeper.keep()
    write_batch(checkpoint, 4)
    keeper.keep()
    assert "batches 1 to 3" in caplog.text
    assert ids(batches(kept, checkpoint)) == [0, 4]


def test_without_a_checkpoint_there_is_nothing(tmp_path: Path) -> None:
    Keeper(tmp_path / "history", tmp_path / "checkpoint").keep()
    assert State(tmp_path).batches() == []
    assert State(tmp_path).progress() == []


def test_one_runs_a_pipeline_at_a_time(tmp_path: Path) -> None:
    state = State.of("etl", tmp_path / "state")
    with state.locked(), pytest.raises(AlreadyRunning, match="runs this pipeline"), state.locked():
        pass
    with state.locked():
        pass
