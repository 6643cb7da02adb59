"""Starts Java for Spark, and passes on its stderr, except for a remark that Spark uses an incubator module."""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import BinaryIO

_STDERR = 2
_REMARK = b"WARNING: Using incubator modules: jdk.incubator.vector"


def start_java(settings: Mapping[str, str]) -> None:
    """Starts Java for the next session."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, str(value))
    read, write = os.pipe()
    threading.Thread(target=pass_on, args=(os.fdopen(read, "rb"),), name="stderr-of-java", daemon=True).start()
    try:
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": write}))  # type: ignore[no-untyped-call]
    finally:
        os.close(write)


def pass_on(lines: BinaryIO) -> None:
    """Until Java and its Python processes have ended."""
    with lines:
        for line in lines:
            if not line.startswith(_REMARK):
                with suppress(OSError):  # stderr has no reader: Java must not block on it
                    os.write(_STDERR, line)
