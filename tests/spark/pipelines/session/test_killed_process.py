"""The archive of classes of a process that is killed while its Java process, a real one, goes on."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tailrace.spark.pipelines.session import class_archive

pytestmark = [pytest.mark.needs("arrow"), pytest.mark.needs("spark")]

PROGRAM = """
import glob, os, signal, subprocess, sys
import pyspark
from tailrace.spark.pipelines.session import class_archive, java

archive, gateway = class_archive.find(java.find(), "4"), glob.glob(f"{pyspark.__path__[0]}/jars/py4j-*.jar")[0]
command = ["java", *archive.java_options.split(), "-cp", gateway, "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
process.stdout.readline()
print(process.pid, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
process.stdin.close()
archive.finish(process.wait)
"""


@pytest.mark.parametrize(("end", "archives"), [("orderly", 1), ("killed", 0)])
def test_only_a_process_that_ends_in_order_leaves_an_archive(tmp_path: Path, end: str, archives: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, end],
        env=os.environ | {class_archive.VARIABLE: str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    java = Path("/proc", ended.stdout.strip())
    while java.exists() and "\nState:\tZ" not in (java / "status").read_text():
        time.sleep(0.05)
    assert len(list(tmp_path.iterdir())) == archives
