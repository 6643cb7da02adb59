"""What is kept of finished batches, from checkpoints as Spark writes them."""

import json
import shutil
from pathlib import Path

import pytest

from tailrace.spark.pipelines.state.history import Batch, Keeper, batches
from tailrace.spark.pipelines.state.state import AlreadyRunning, State
from tailrace.spark.source.options import BadOptions


def write_batch(checkpoint: Path, number: int, *, is_finished: bool = True) -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    about = {"batchWatermarkMs": number * 10, "batchTimestampMs": 1000 + number, "conf": {"x": "a"}}
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
    assert found[2] == Batch(2, ({"orders": {"0": 2}},), 20, 1002)
    assert found[2].end == {"orders": {"0": 2}}


def test_what_only_the_checkpoint_has_counts_too(checkpoint: Path, kept: Path) -> None:
    write_batch(checkpoint, 0)
    Keeper(kept, checkpoint).keep()
    write_batch(checkpoint, 1)
    assert ids(batches(kept, checkpoint)) == [0, 1]
    Keeper(kept, checkpoint).keep()
    assert ids(batches(kept, kept / "nothing")) == [0, 1], "a new start keeps it first"


def test_a_query_that_reads_its_topics_twice_has_no_one_end(checkpoint: Path, kept: Path) -> None:
    write_batch(checkpoint, 0)
    with (checkpoint / "offsets" / "0").open("a") as file:
        file.write('\n{"orders": {"0": 5, "1": 7}}')
    Keeper(kept, checkpoint).keep()
    (batch,) = batches(kept, checkpoint)
    assert batch.lowest == {"orders": {"0": 0, "1": 7}}
    with pytest.raises(BadOptions, match="reads its topics 2 times"):
        _ = batch.end


def test_lines_of_an_older_version_are_read(checkpoint: Path, kept: Path) -> None:
    kept.mkdir()
    line = {"id": 0, "ends": [{"orders": {"0": 1}}], "watermark_ms": 1, "timestamp_ms": 2, "next_watermark_ms": 3}
    (kept / "batches.jsonl").write_text(f'{{"query": "first"}}\n{json.dumps(line | {"conf": {}})}\n')
    assert batches(kept, checkpoint) == [Batch(0, ({"orders": {"0": 1}},), 1, 2)]


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
    (kept / "progress.jsonl").write_text('{"batch": 4}\n')
    shutil.rmtree(checkpoint)
    write_batch(checkpoint, 0)
    (checkpoint / "metadata").write_text('{"id":"second"}')
    Keeper(kept, checkpoint).keep()
    assert ids(batches(kept, checkpoint)) == [0]
    names = sorted(path.name for path in kept.iterdir())
    assert names == ["batches-first.jsonl", "batches.jsonl", "progress-first.jsonl"], "late rows of two runs never mix"


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


def test_a_directory_is_of_one_pipeline(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    assert state.owner() is None
    with state.locked():
        state.claim("small", ["orders"], [])
        state.claim("big", ["orders"], [("topic", "big")])  # the first has read nothing
        write_batch(state.checkpoint, 0)
        state.claim("big", ["orders"], [("topic", "big")])
        state.claim("big", ("orders",), [("files", "/out"), ("topic", "big")])
        assert state.owner() == {"name": "big", "source": ["orders"], "sink": [["topic", "big"], ["files", "/out"]]}
        with pytest.raises(BadOptions, match=r"belongs to pipeline big, which reads orders; small reads orders"):
            state.claim("small", ["orders"], [])
        with pytest.raises(BadOptions, match="big reads orders, refunds, and would skip"):
            state.claim("big", ["refunds", "orders"], [])


def test_of_a_batch_only_some_lines_are_kept(tmp_path: Path) -> None:
    known = dict.fromkeys(("batch", "at", "rows", "rows_per_second", "corrupt", "tombstones", "late", "start", "end"))
    State(tmp_path).add_progress({**known, "lag": 5, "watermark": "x", "duration_ms": {"addBatch": 1, "total": 2}})
    assert State(tmp_path).progress() == [{**known, "duration_ms": {"total": 2}}]


def test_where_the_query_of_corrupt_messages_begins_is_noted_once(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert not state.knows_side()
    state.note_side_start(None)
    assert state.knows_side()
    assert state.side_start() is None
    state.note_side_start({"orders": {"0": 5}})
    assert State(tmp_path).side_start() == {"orders": {"0": 5}}
