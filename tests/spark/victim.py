"""A query that may be told to hang in one of its batches, and as a program a driver that is killed there.

Its rows go to Parquet files, a directory for each batch, which a batch that is run again writes anew.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def start(spark: Any, options: dict[str, str], directory: Path, hang_in: int | None = None, **trigger: Any) -> Any:
    """`rows` and `checkpoint` are in the directory."""

    def write(frame: Any, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(directory / "rows" / f"batch={batch}"))
        if batch == hang_in:
            print("there", flush=True)
            time.sleep(600)

    stream = spark.readStream.format("tailrace").options(**options).load()
    writer = stream.selectExpr("CAST(value AS STRING) v", "partition", "offset").writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return (writer.trigger(**trigger) if trigger else writer).start()


def main() -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    given = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    start(session, given["options"], Path(given["directory"]), given["hang_in"], **given["trigger"]).awaitTermination()


if __name__ == "__main__":
    main()
