"""State and Parquet output that do not belong together, with a real Spark: a start is refused, or every row arrives."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tailrace.spark import Json, Parquet, Pipeline, pipeline
from tailrace.spark.pipelines import run as running
from tailrace.spark.pipelines import stores
from tailrace.spark.pipelines.failures import RunFailed
from tailrace.spark.pipelines.outputs import OWNER, OutputMismatch
from tailrace.spark.pipelines.stores import Directory, StoreError
from tailrace.spark.source.options import BadOptions
from tailrace.testing import Broker

pytestmark = [
    pytest.mark.needs("arrow"),
    pytest.mark.needs("spark"),
    pytest.mark.timeout(250),
    pytest.mark.spark,
]

Produce = Callable[..., None]


class Runs:
    """Runs of one pipeline, `etl`, from a topic into `out`; each one reads what is in the topic."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, produce: Produce, path: Path) -> None:
        self.spark, self.bootstrap, self.topic, self.path = spark, bootstrap, topic, path
        self._produce, self._sent = produce, 0

    def job(self, name: str = "etl", out: str = "out", **more: Any) -> Pipeline:
        sink = Parquet(str(self.path / out))
        return pipeline(source=self.topic, decode=Json("id INT"), sink=sink, name=f"{name}-{self.topic}", **more)(
            lambda frame: frame.select("id")
        )

    def send(self, count: int = 2) -> None:
        self._produce(*(f'{{"id": {number}}}' for number in range(self._sent, self._sent + count)))
        self._sent += count

    def run(self, job: Pipeline | None = None, state: str = "state", **more: Any) -> Any:
        given = {"once": True, "spark": self.spark, "state": self.path / state, "max_restarts": 0} | more
        return (job or self.job()).run(self.bootstrap, **given)

    def ids(self, out: str = "out") -> list[int]:
        return sorted(row.id for row in self.spark.read.parquet(str(self.path / out)).collect())

    def last(self, of: str) -> int:
        names = (path.name.removesuffix(".compact") for path in (self.path / of).iterdir())
        return max(int(name) for name in names if name.isdecimal())

    def has_all(self, out: str = "out") -> bool:
        return self.ids(out) == list(range(self._sent))

    def refuses(self, *said: str, job: Pipeline | None = None, state: str = "state", **more: Any) -> None:
        """The run is refused, with all of `said` in the message; neither output nor checkpoint changes."""
        before = self._files("out", state)
        with pytest.raises(BadOptions) as refusal:
            self.run(job, state, **more)
        for text in said:
            assert text in str(refusal.value)
        assert self._files("out", state) == before

    def _files(self, out: str, state: str) -> dict[str, bytes]:
        paths = [*(self.path / out).rglob("*"), *(self.path / state).glob("*checkpoint/**/*")]
        return {str(path): path.read_bytes() for path in paths if path.is_file()}


@pytest.fixture
def runs(spark: Any, broker: Broker, topic: str, produce: Produce, tmp_path: Path) -> Runs:
    made = Runs(spark, broker.bootstrap, topic, produce, tmp_path)
    made.send()
    return made


# What does not fit


def test_a_renamed_pipeline_is_refused_and_goes_on_under_its_old_name(runs: Runs) -> None:
    runs.run()
    runs.send()
    old = runs.job().name
    runs.refuses(f"name='{old}'", f"{runs.path}/state", job=runs.job("etl_v2"), state="state-v2")
    runs.run(replace(runs.job("etl_v2"), name=old))
    assert runs.has_all()


@pytest.mark.parametrize("has_owner", [True, False])
def test_a_deleted_state_directory_is_refused_until_the_output_is_deleted_too(runs: Runs, has_owner: bool) -> None:
    runs.run()
    runs.send()
    shutil.rmtree(runs.path / "state")
    if not has_owner:
        (runs.path / "out" / OWNER).unlink()
    runs.refuses("delete", f"{runs.path}/out", f"{runs.path}/state")
    shutil.rmtree(runs.path / "state")
    shutil.rmtree(runs.path / "out")
    runs.run()
    assert runs.has_all()


def test_a_lost_checkpoint_is_refused_and_goes_on_once_it_is_restored(runs: Runs) -> None:
    runs.run()
    runs.send()
    checkpoint = runs.path / "state" / "checkpoint"
    checkpoint.rename(runs.path / "backup")
    runs.refuses("Restore", str(checkpoint))
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    (runs.path / "backup").rename(checkpoint)
    runs.run()
    assert runs.has_all()


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_checkpoint_without_the_id_of_its_query_is_refused(runs: Runs, content: bytes | None) -> None:
    runs.run()
    metadata = runs.path / "state" / "checkpoint" / "metadata"
    metadata.unlink()
    if content is not None:
        metadata.write_bytes(content)
    runs.refuses(f"{metadata} is missing or damaged", "Restore the file from a backup")


def test_an_older_copy_of_a_checkpoint_is_refused(runs: Runs) -> None:
    runs.run()
    shutil.copytree(runs.path / "state", runs.path / "older")
    runs.send()
    runs.run()
    runs.send()
    runs.refuses("older than the output", state="older")
    runs.run()
    assert runs.has_all()


def test_two_pipelines_with_the_same_batch_numbers_do_not_share_a_path(runs: Runs) -> None:
    runs.run()
    runs.run(runs.job("other", "out-other"), "state-other")
    runs.send()
    runs.refuses(f"pipeline {runs.job().name}", job=runs.job("other", "out"), state="state-other")
    runs.run(runs.job("other", "out-other"), "state-other")
    runs.run()
    assert runs.has_all()
    assert runs.has_all("out-other")


def test_the_owner_of_a_path_that_has_no_batch_yet_keeps_out_another_pipeline(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tailrace.spark.pipelines.sinks._start", lambda writer, settings: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            runs.run()
    assert json.loads((runs.path / "out" / OWNER).read_text())["pipeline"] == runs.job().name
    runs.refuses(f"pipeline {runs.job().name}", job=runs.job("other"), state="state-other")
    runs.run()
    assert runs.has_all()


def test_of_two_pipelines_that_start_at_once_with_one_path_one_is_refused(runs: Runs) -> None:
    with ThreadPoolExecutor(2) as pool:
        started = [
            pool.submit(runs.run, runs.job(name), f"state-{name}", stop=threading.Event()) for name in ("one", "two")
        ]
    errors = [error for one in started if (error := one.exception()) is not None]
    assert [type(error) for error in errors] == [OutputMismatch]
    assert runs.has_all()


def test_another_state_directory_is_refused_and_the_right_one_is_named(runs: Runs) -> None:
    runs.run()
    runs.send()
    runs.refuses(f"state='{runs.path}/state'", state="elsewhere")


def test_a_moved_sink_is_refused_and_continues_at_the_new_path_from_its_group(runs: Runs) -> None:
    runs.run()
    runs.send()
    runs.refuses(f"{runs.path}/state/pipeline.json", "start='group'", job=runs.job(out="out-new"))
    runs.run(runs.job(out="out-new", start="group"), "state-new")
    assert (runs.ids("out"), runs.ids("out-new")) == ([0, 1], [2, 3])


def test_the_ways_out_that_the_error_of_lost_records_names_lose_nothing_more(runs: Runs, broker: Broker) -> None:
    runs.run()
    runs.send(4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition(runs.topic, 0, 3)]).values():
        future.result(10)
    with pytest.raises(RunFailed) as lost:
        runs.run()
    assert "a new state directory and a new output" in str(lost.value)
    assert "on_data_loss" in str(lost.value)
    runs.refuses("state-new", state="state-new")
    runs.run(runs.job(out="out-new"), "state-new")
    assert runs.ids("out-new") == [3, 4, 5]


def test_an_output_for_corrupt_messages_is_guarded_too(runs: Runs, produce: Produce) -> None:
    decode = Json("id INT", corrupt=Parquet(str(runs.path / "bad")))
    produce("{")
    job = replace(runs.job(), decode=decode)
    runs.run(job)
    produce("}")
    with pytest.raises(BadOptions, match=f"{runs.path}/bad"):
        runs.run(replace(runs.job(out="out-new"), decode=decode), "state-new")
    runs.run(job)
    bad = runs.spark.read.parquet(str(runs.path / "bad")).collect()
    assert sorted(bytes(row.value) for row in bad) == [b"{", b"}"]


# What fits


@pytest.fixture
def compacting(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "2")
    yield
    spark.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")


@pytest.mark.usefixtures("compacting")
def test_restarts_continue_after_each_batch_with_and_without_compaction_and_owner(runs: Runs) -> None:
    (runs.path / "out").mkdir()  # an empty directory is a fresh output
    kinds = set()
    for number in range(4):
        if number == 2:  # as an older version has left it
            (runs.path / "out" / OWNER).unlink()
            (runs.path / "out" / f".{OWNER}.crc").unlink()
        runs.run(options={"maxOffsetsPerTrigger": "1"} if number else None)
        last = runs.last("out/_spark_metadata")
        kinds.add((runs.path / "out/_spark_metadata" / f"{last}.compact").exists())
        runs.send(1)
    runs.run()
    assert runs.has_all()
    assert kinds == {True, False}
    query = json.loads((runs.path / "state/checkpoint/metadata").read_text())["id"]
    assert json.loads((runs.path / "out" / OWNER).read_text())["query"] == query


@pytest.mark.parametrize("is_in_output", [True, False])
def test_a_kill_before_the_checkpoint_is_harmless_whether_the_sink_committed_or_not(
    runs: Runs, is_in_output: bool
) -> None:
    runs.run()
    last = runs.last("state/checkpoint/commits")
    assert runs.last("out/_spark_metadata") == last
    for log in ("state/checkpoint/commits",) if is_in_output else ("state/checkpoint/commits", "out/_spark_metadata"):
        (runs.path / log / str(last)).unlink()
        (runs.path / log / f".{last}.crc").unlink()
    runs.send()
    runs.run()
    assert runs.has_all()


def test_a_kill_in_the_midst_of_the_first_batch_goes_on(runs: Runs) -> None:
    runs.run()
    for name in ("out/_spark_metadata", "state/checkpoint/commits"):
        shutil.rmtree(runs.path / name)
    for path in (runs.path / "state/checkpoint/offsets").iterdir():
        if path.name not in ("0", ".0.crc"):
            path.unlink()
    runs.run()
    assert runs.has_all()


@pytest.mark.parametrize("write", [1, 2])
@pytest.mark.parametrize("step", ["create", "rename"])
def test_a_kill_at_any_step_of_a_claim_leaves_what_the_next_start_takes(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, write: int, step: str
) -> None:
    """The first write is that of the query's id, and the second that of the owner file."""
    count = 0

    class Killed(BaseException):
        pass

    def dies(done: Any) -> Any:
        def call(*given: Any) -> Any:
            nonlocal count
            count += 1
            if count == write:
                raise Killed
            return done(*given)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(stores, f"_{step}", dies(getattr(stores, f"_{step}")))
        with pytest.raises(Killed):
            runs.run()
    runs.run()
    assert runs.has_all()
    assert (runs.path / "out" / OWNER).exists()


def test_an_owner_file_that_cannot_be_read_is_written_again(runs: Runs) -> None:
    runs.run()
    (runs.path / "out" / OWNER).write_bytes(b"{")  # and its checksum no longer fits
    runs.send()
    runs.run()
    assert runs.has_all()
    assert json.loads((runs.path / "out" / OWNER).read_text())["pipeline"] == runs.job().name


def test_an_exact_replay_into_a_new_path_leaves_the_owner_of_the_live_output(runs: Runs) -> None:
    runs.run()
    owner = (runs.path / "out" / OWNER).read_bytes()
    for overwrite in (False, True):
        runs.job().replay(
            runs.bootstrap,
            sink=Parquet(str(runs.path / "again")),
            mode="exact",
            state=runs.path / "state",
            spark=runs.spark,
            overwrite=overwrite,
        )
        assert runs.has_all("again")
    assert (runs.path / "out" / OWNER).read_bytes() == owner
    runs.send()
    runs.run()
    assert runs.has_all()


# The store


def test_files_are_replaced_as_a_whole_on_any_store(spark: Any, tmp_path: Path) -> None:
    directory = Directory(spark, f"file://{tmp_path}/made/by/it")
    assert (directory.names(), directory.read("a")) == ([], None)
    directory.write("a", b"first", replace=False)
    directory.write("a", b"second", replace=True)
    with pytest.raises(StoreError, match="made/by/it/a was made by another process"):
        directory.write("a", b"third", replace=False)
    assert (directory.names(), directory.read("a")) == (["a"], b"second")
    assert directory.inside("deeper").names() == []


def test_a_store_that_fails_is_named_and_tried_again(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "FIRST_DELAY_S", 0.01)
    with pytest.raises(StoreError, match=r'nostore.*No FileSystem for scheme "nostore"'):
        Directory(runs.spark, "nostore://bucket/out").names()
    with pytest.raises(RunFailed, match="No FileSystem"):
        runs.run(replace(runs.job(), sink=Parquet("nostore://bucket/out")), max_restarts=1)
    assert "started again" in caplog.text
