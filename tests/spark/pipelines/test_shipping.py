"""A cluster whose machines get tailrace as an archive: its workers are processes of their own."""

import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.spark.pipelines.shipping import make_zip
from tailrace.testing import Broker

JOB = """
    import sys
    from tailrace.spark import Json, Parquet, pipeline, session
    from tailrace.spark.source import TailraceSource

    bootstrap, topic, directory, archive = sys.argv[1:]
    is_submitted = archive == "by spark-submit"
    there = {} if is_submitted else {"spark.submit.pyFiles": archive}
    spark = session("shipped", None if is_submitted else "local-cluster[2,1,1024]", **there)
    assert spark.sparkContext.master == "local-cluster[2,1,1024]"
    spark.dataSource.register(TailraceSource)

    def home(_):
        import tailrace
        return tailrace.__file__

    print(spark.sparkContext.parallelize([0], 1).map(home).collect()[0])

    @pipeline(source=topic, decode=Json("id INT"), sink=Parquet(directory + "/out"))
    def shipped(orders):
        return orders.select("id")

    print(shipped.run(bootstrap, spark=spark, once=True, state=directory + "/state").rows)
"""


def test_an_archive_has_both_packages_and_nothing_else(tmp_path: Path) -> None:
    make_zip(tmp_path / "tailrace.zip")
    names = zipfile.ZipFile(tmp_path / "tailrace.zip").namelist()
    assert {"tailrace/__init__.py", "tailrace/spark/data_source.py", "pyspark_tailrace/__init__.py"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"tailrace", "pyspark_tailrace"}


@pytest.mark.needs("arrow")
@pytest.mark.needs("spark")
@pytest.mark.timeout(0)
@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.parametrize("is_submitted", [False, True])
def test_executors_run_what_is_shipped_to_them(
    broker: Broker, topic: str, produce: Callable[..., None], tmp_path: Path, is_submitted: bool
) -> None:
    import pyarrow.parquet as pq
    import pyspark

    produce('{"id": 1}', '{"id": 2}')
    produce('{"id": 3}', partition=1)
    archive = tmp_path / "tailrace.zip"
    make_zip(archive)
    job = tmp_path / "job.py"
    job.write_text(textwrap.dedent(JOB))
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    submit += ["--py-files", str(archive)]
    program, how = (submit, "by spark-submit") if is_submitted else ([sys.executable], str(archive))
    ended = subprocess.run(
        [*program, str(job), broker.bootstrap, topic, str(tmp_path), how],
        env=os.environ | {"TAILRACE_SPARK_ARCHIVE": "off", "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    home, rows = ended.stdout.split()
    assert "tailrace.zip" in home
    assert rows == "3"
    assert sorted(pq.read_table(tmp_path / "out").column("id").to_pylist()) == [1, 2, 3]


BARE_JOB = """
    import sys
    from tailrace.spark import session
    from tailrace.spark.source import TailraceSource

    bootstrap, topic = sys.argv[1:]
    spark = session("bare")
    spark.dataSource.register(TailraceSource)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    print("rows:", spark.read.format("tailrace").options(**options).load().count())
"""


@pytest.mark.needs("arrow", "spark")
@pytest.mark.timeout(300)
@pytest.mark.spark
def test_a_driver_without_tailrace_reads_with_the_archive_on_its_path(
    broker: Broker, topic: str, produce: Callable[..., None], tmp_path: Path
) -> None:
    """docs/PIPELINES.md, "On a cluster": Spark plans reads in a process of the driver that gets no `--py-files`."""
    import pyspark

    produce("tea", "milk")
    packages = Path(pyspark.__file__).parent.parent
    python = tmp_path / "python"  # has all that is installed, but for what a .pth file adds: this working tree
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    bare = subprocess.run([python, "-c", "import tailrace"], cwd=tmp_path, capture_output=True, text=True)
    if bare.returncode == 0:
        pytest.skip("tailrace is installed beside pyspark, and cannot be hidden")
    make_zip(tmp_path / "tailrace.zip")
    (tmp_path / "job.py").write_text(textwrap.dedent(BARE_JOB))
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    submit += ["--py-files", str(tmp_path / "tailrace.zip"), "job.py", broker.bootstrap, topic]
    python_of_spark = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    ended = subprocess.run(
        submit,
        env=os.environ | python_of_spark | {"PYTHONPATH": str(tmp_path / "tailrace.zip")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert "rows: 2" in ended.stdout.splitlines()
