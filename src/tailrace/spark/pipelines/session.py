"""A Spark session with the settings that pipelines need."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(app: str = "tailrace", master: str | None = None, **conf: str) -> "SparkSession":
    from pyspark.sql import SparkSession

    cores = os.cpu_count() or 1
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.master": master or f"local[{cores},4]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
    }
    builder = SparkSession.builder.appName(app)
    for name, value in {**settings, **conf}.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def any_session(app: str, master: str | None = None) -> "SparkSession":
    """The one that there is, or one that is made."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or session(app, master)
