"""Java for Spark: the one that there is, or one that is installed where we may do that."""

import importlib.util
import os
import shutil
import subprocess

from demo.screen import Screen
from tailrace.spark.pipelines.session import java

PACKAGE = "default-jre-headless"


def is_installed() -> bool:
    """Whether Spark can run as things are. Says nothing."""
    if importlib.util.find_spec("pyspark") is None:
        return False
    try:
        java.find()
    except java.NoJava:
        return False
    return True


def is_there(screen: Screen) -> bool:
    """Whether Spark can run. Where it cannot, one line has said what to do."""
    if is_installed():
        return True
    if importlib.util.find_spec("pyspark") is None:
        screen.say('PySpark is not installed: pip install "tailrace[spark]".', "yellow")
        return False
    try:
        java.find()
    except java.NoJava as missing:
        if may_install():
            return install(screen)
        screen.say(f"{missing}.", "yellow")
    return False


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(screen: Screen) -> bool:
    """As Debian and Ubuntu do it. Says so, whether that went well or not."""
    screen.say(f"There is no Java, which Spark needs: $ apt-get install {PACKAGE}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", PACKAGE]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    if done.returncode != 0:
        screen.say(done.stderr.rstrip()[-500:], "yellow")
    try:
        java.find()
    except java.NoJava as missing:
        screen.say(f"{missing}.", "yellow")
        return False
    return True
