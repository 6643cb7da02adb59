"""Which Java, which settings, and the archive of classes: without starting any of it."""

import io
import logging
import os
import socket
import socketserver
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.spark.pipelines.session import class_archive as archive
from tailrace.spark.pipelines.session import java, java_log, launcher, session
from tailrace.spark.pipelines.session.java import Java, NoJava
from tailrace.spark.pipelines.session.session import expect_the_end_of_java, is_not_of_a_lost_java, settings

JAVA = Java(Path("/opt/java/bin/java"), "17.0.1")


def test_no_java_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NoJava, match=r"needs Java 17 or later, and there is none in the PATH: install one"):
        java.find()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(NoJava, match=r"none in JAVA_HOME \(/nowhere\)"):
        java.find()


@pytest.mark.parametrize(
    ("says", "version"), [('JAVA_VERSION="17.0.15"', "17.0.15"), ('X="1"\nJAVA_VERSION="21"', "21")]
)
def test_a_version_is_read_from_the_file_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, version: str
) -> None:
    make_java(tmp_path, "exit 1", says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find().version == version


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path, """echo 'openjdk version "1.8.0_392"' >&2""", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match=r"is 8\.0_392"):
        java.find()


def make_java(home: Path, script: str, release: str | None) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    if release is not None:
        (home / "release").write_text(release)


def test_only_a_local_master_stays_on_this_machine() -> None:
    assert settings("local[2,4]")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings("spark://host:7077")
    assert "spark.master" not in settings(None)
    assert settings("yarn")["spark.sql.adaptive.streaming.stateless.enabled"] == "false"


def test_java_is_given_a_logging_configuration_that_exists() -> None:
    (option,) = session._java_options({}, None)
    assert Path(option.removeprefix("-Dlog4j2.configurationFile=file:")).is_file()


def test_what_java_says_is_passed_on_but_for_one_remark(capfd: pytest.CaptureFixture[str]) -> None:
    said = b"WARNING: Using incubator modules: jdk.incubator.vector\n12:00:00 ERROR Disk: it is full\nno end"
    launcher.pass_on(io.BytesIO(said))
    assert capfd.readouterr().err == "12:00:00 ERROR Disk: it is full\nno end"


# The archive


@pytest.mark.parametrize(("error", "is_told"), [(EOFError, False), (ConnectionResetError, False), (ValueError, True)])
def test_a_java_that_is_gone_first_is_no_stack_trace(
    error: type[Exception], is_told: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            raise error("of the thread")

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        expect_the_end_of_java(server)
        logging.getLogger().removeFilter(is_not_of_a_lost_java)
        with socket.create_connection(server.server_address):  # type: ignore[arg-type]
            server.handle_request()
    assert ("Traceback" in capfd.readouterr().err) == is_told


def test_a_call_that_java_does_not_answer_raises_an_exception_without_a_stack_trace() -> None:
    """Py4J logs what it raises, too, where Java ends with bytes of the call unread: its machine then resets the
    connection."""
    pytest.importorskip("py4j")
    program = """
import logging, socket, struct, threading
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError
from tailrace.spark.pipelines.session.session import expect_the_end_of_java

def java_that_ends(listener):
    connection, _ = listener.accept()
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    listener.close()

listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=java_that_ends, args=(listener,), daemon=True).start()
expect_the_end_of_java(None)
java = JavaParameters(port=listener.getsockname()[1], eager_load=False)
gateway = ClientServer(java, PythonParameters(port=0, daemonize=True))
for call in range(2):
    try:
        gateway.jvm.System.nanoTime()
    except (Py4JError, ConnectionError) as error:
        print("raised")
        last = error
logging.error("of somebody else", exc_info=last)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "raised\nraised\n"
    assert ended.stderr.startswith("ERROR:root:of somebody else\nTraceback"), "nothing before that"


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    pytest.importorskip("pyspark")
    monkeypatch.setenv(archive.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_archive(content: bytes = b"classes", code: int = 0) -> None:
    """As a first session does."""
    begun = archive.find(JAVA, "4.3.0")
    assert begun is not None
    assert "ArchiveClassesAtExit" in begun.java_options
    begun.path.write_bytes(content)
    begun.finish(lambda: code)


def test_the_second_session_has_what_the_first_has_left(directory: Path) -> None:
    make_archive()
    found = archive.find(JAVA, "4.3.0")
    assert found is not None
    assert f"-XX:SharedArchiveFile={found.path}" in found.java_options
    assert [path.name for path in directory.iterdir()] == [found.path.name]
    other = archive.find(JAVA, "4.2.0")
    assert other is not None
    assert not other.is_there, "another Spark has another one"


def test_of_two_that_were_made_at_once_one_is_kept_and_what_was_abandoned_goes(directory: Path) -> None:
    make_archive(b"one")
    (first,) = directory.iterdir()
    kept = first.read_bytes()
    first.unlink()
    make_archive(b"two")
    first.write_bytes(kept)
    left = directory / "java-17.jsa.1"
    left.touch()
    os.utime(left, (0, 0))
    found = archive.find(JAVA, "4.3.0")
    assert found is not None
    assert found.is_there
    assert list(directory.iterdir()) == [found.path]


def test_a_java_that_does_not_end_is_no_error(directory: Path) -> None:
    begun = archive.find(JAVA, "4.3.0")
    assert begun is not None

    def wait() -> int:
        raise subprocess.TimeoutExpired("java", 120)

    begun.finish(wait)
    assert list(directory.iterdir()) == []


def test_a_java_that_ended_badly_leaves_none(directory: Path) -> None:
    make_archive(code=1)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("damage", [b"", b"class", b"claSses"])
def test_a_damaged_archive_is_never_used(directory: Path, damage: bytes) -> None:
    make_archive()
    (path,) = directory.iterdir()
    path.write_bytes(damage)
    found = archive.find(JAVA, "4.3.0")
    assert found is None or not found.is_there
    make_archive(b"again")
    again = archive.find(JAVA, "4.3.0")
    assert again is not None
    assert again.is_there


def test_where_none_can_be_written_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (str(tmp_path / "file" / "cache"), str(tmp_path / "with blank"), "off"):
        monkeypatch.setenv(archive.VARIABLE, place)
        assert archive.find(JAVA, "4.3.0") is None


def test_unfinished_archives_of_processes_that_have_ended_are_deleted(directory: Path) -> None:
    directory.mkdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, old, recent = (
        directory / f"java-{kind}.jsa.{pid}" for kind, pid in enumerate((ended.pid, *[os.getppid()] * 2))
    )
    for path in (left, old, recent):
        path.touch()
    os.utime(old, (0, 0))
    archive.find(JAVA, "4.3.0")
    assert list(directory.iterdir()) == [recent]


def test_java_is_given_a_path_that_ends_with_our_process(directory: Path) -> None:
    begun = archive.find(JAVA, "4.3.0")
    assert begun is not None
    path = Path(begun.java_options.split()[0].partition("=")[2])
    assert str(path).startswith(f"/proc/{os.getpid()}/fd/")
    path.write_bytes(b"classes")
    assert begun.path.read_bytes() == b"classes"
    begun.finish(lambda: 0)
    assert not path.parent.exists()


def test_java_logs_to_a_file_that_the_user_may_choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(java_log.VARIABLE, str(tmp_path / "mine.log"))
    java_log.choose(tmp_path / "other.log")
    assert java_log.written() is None
    (tmp_path / "mine.log").write_text("12:00:00 ERROR")
    assert java_log.written() == tmp_path / "mine.log"
