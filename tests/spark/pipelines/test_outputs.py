"""Which outputs and checkpoints fit, and what is said where they do not: without Spark."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.pipelines.outputs import NO_BATCH, Checkpoint, Owner, last_batch, mismatch, read_owner

PATH = "/data/out"
MINE = Owner("a1", "etl", "/data/state/checkpoint")


def said(last: int, planned: int = NO_BATCH, finished: int | None = None, owner: Owner | None = None) -> str:
    at = Checkpoint("a1", planned, planned if finished is None else finished)
    return mismatch(PATH, last, owner, MINE, at) or ""


# Numbers


@pytest.mark.parametrize(
    ("names", "last"),
    [
        ([], NO_BATCH),
        (["0", "1", "10", "9.compact"], 10),
        (["8", "9.compact"], 9),
        ([".11.6a0f.tmp", ".10.crc", "_12", "13.compact.tmp", "14.compact.crc", "15x", "3"], 3),
    ],
)
def test_the_last_batch_is_the_highest_number_compacted_or_not(names: list[str], last: int) -> None:
    assert last_batch(names) == last


@given(st.integers(0, 30))
def test_a_query_that_is_killed_after_any_write_fits_its_output(writes: int) -> None:
    """Spark writes the plan of a batch, then that batch of the sink, then the checkpoint's commit."""
    planned, last, finished = ((writes + 2 - step) // 3 - 1 for step in range(3))
    assert Checkpoint("a1", planned, finished).fits(last)


@given(st.integers(0, 9), st.booleans(), st.integers(0, 9))
def test_an_output_fits_only_if_spark_skips_no_new_batch_and_leaves_no_hole(
    planned: int, is_finished: bool, last: int
) -> None:
    at = Checkpoint("a1", planned, planned if is_finished else planned - 1)
    first_to_write = max(at.next, last + 1)
    skipped = range(planned + 1, first_to_write)  # of these the rows are in no output: the plan is a new one
    missing = range(last + 1, at.next)
    assert at.fits(last) == (not skipped and not missing)


@pytest.mark.parametrize(("finished", "fitting"), [(NO_BATCH, [4, 5]), (4, [4, 5]), (5, [5]), (7, [4, 5])])
def test_a_planned_batch_is_run_again_unless_it_is_finished(finished: int, fitting: list[int]) -> None:
    assert [last for last in range(-1, 9) if Checkpoint("a1", 5, finished).fits(last)] == fitting


def test_a_checkpoint_without_plans_fits_an_output_without_batches_only() -> None:
    for finished in (NO_BATCH, 3):
        assert [last for last in range(-1, 5) if Checkpoint(None, NO_BATCH, finished).fits(last)] == [NO_BATCH]


# Owners


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null", b"{}", b'{"query": "a1", "more": 1}'])
def test_an_owner_file_that_cannot_be_read_counts_as_none(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert read_owner(content, PATH) is None
    assert f"{PATH}/_tailrace_owner.json cannot be read" in caplog.text


def test_an_owner_file_is_read_as_it_was_written() -> None:
    content = {"query": "a1", "pipeline": "etl", "checkpoint": "/data/state/checkpoint"}
    assert read_owner(json.dumps(content).encode(), PATH) == MINE
    assert read_owner(None, PATH) is None


def test_an_output_of_this_query_or_of_no_known_owner_is_taken_if_the_numbers_fit() -> None:
    for owner in (None, MINE, replace(MINE, pipeline="old", checkpoint="/moved/checkpoint")):
        assert not said(5, 5, owner=owner)
        assert not said(NO_BATCH, owner=owner)
        assert said(6, 5, owner=owner)


# What is said


def test_a_renamed_pipeline_is_told_its_old_name_and_state() -> None:
    text = said(3, owner=Owner("b2", "old", "/data/old/checkpoint"))
    assert "state='/data/old' (--state /data)" in text
    assert "the output belongs to pipeline old with the state directory /data/old" in text
    assert "Spark would skip the rows of batches 0 to 3." in text
    assert "name='old' and state='/data/old'" in text
    assert "give etl a path of its own" in text


def test_a_pipeline_that_has_run_is_not_sent_to_a_new_path_with_its_old_state() -> None:
    text = said(3, 3, owner=Owner("b2", "other", "/data/other/checkpoint"))
    assert "give etl its own path, or a new path together with a new state directory" in text
    assert "skip" not in text, "the numbers fit by chance"


def test_a_pipeline_in_another_state_directory_is_told_the_right_one() -> None:
    assert "Run it with state='/data/old'" in said(
        3, owner=replace(MINE, query="b2", checkpoint="/data/old/checkpoint")
    )


def test_a_lost_checkpoint_is_to_be_restored_or_deleted_with_the_output() -> None:
    for owner in (None, MINE, replace(MINE, query="b2")):
        text = said(3, owner=owner)
        assert "Restore /data/state/checkpoint and /data/out from one backup" in text
        assert "delete /data/out and /data/state together" in text
        assert "batches 0 to 3" in text


def test_a_sink_with_a_new_path_is_told_where_the_old_one_stands_and_how_to_go_on() -> None:
    text = said(NO_BATCH, 5)
    assert "Spark could not read the output without batches 0 to 5" in text
    assert "/data/state/pipeline.json" in text
    assert "a new state directory and start='group'" in text


@pytest.mark.parametrize(("last", "what"), [(8, "skip the rows of batches 6 to 8"), (3, "without batches 4 to 5")])
def test_copies_of_different_age_are_named(last: int, what: str) -> None:
    text = said(last, 5)
    assert what in text
    assert f"up to {last}, and the checkpoint up to 5: it is {'older' if last > 5 else 'newer'} than the output" in text
    assert "from one backup" in text
