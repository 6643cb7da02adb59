"""`tailrace serve`: it says where it is, refuses what is not safe or not possible, and stops cleanly when told to."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from raw_client import RawClient

from tailrace.log.directory.admission import FORMAT_VERSION
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.testing.broker_process import BrokerNotReady

CLEAN = ".kafka_cleanshutdown"
REFUSED, USAGE, FAILED = 5, 2, 1


def serve(*options: str) -> tuple[int, str]:
    """The exit code of a broker that is not expected to start, and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "serve", *options], capture_output=True, text=True, timeout=30
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def test_it_says_where_it_is_and_what_to_try(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--listen", "127.0.0.1:0") as broker:
        assert broker.said.count("listening on 127.0.0.1:") == 2
        host, port = broker.address
        assert f"Connect any Kafka client to {host}:{port}" in broker.said
        assert f"tailrace produce greetings -b {host}:{port}" in broker.said
        with RawClient(broker.address) as client:
            client.ask(ApiVersionsRequest(), 3)
        assert broker.stop() == 0
    assert (tmp_path / "data" / CLEAN).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_under_load(tmp_path: Path, number: signal.Signals) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.address) as client:
            topic = CreatableTopic(name="orders", num_partitions=4, replication_factor=1)
            client.ask(CreateTopicsRequest(topics=[topic]), 7)
        threads = [threading.Thread(target=load, args=(broker.address, index)) for index in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        assert broker.end(number) == 0  # or it is killed after a minute
        for thread in threads:
            thread.join()
    assert (tmp_path / "data" / CLEAN).exists()


def load(address: tuple[str, int], partition: int) -> None:
    with RawClient(address) as client:
        try:
            while True:
                client.produce(b"x" * 100_000, partition=partition)
                client.values(partition=partition, max_wait_ms=100)
        except OSError:
            pass


def test_a_second_one_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data"):
        code, said = serve("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--metrics", "off")
    assert code == REFUSED
    assert "is in use by another process" in said
    assert "--data" in said


def test_a_directory_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(Path(__file__).parents[2] / "data" / "format-1" / "stopped", data)
    (data / "tailrace.format").write_text(f"{FORMAT_VERSION + 1}\n")
    before = state_of(data)
    code, said = serve("--data", str(data), "--listen", "127.0.0.1:0", "--metrics", "off")
    assert code == REFUSED
    says = f"has format '{FORMAT_VERSION + 1}', and this release knows {FORMAT_VERSION}: "
    says += "open it with the release that wrote it, or a newer one"
    assert said == f"tailrace: {data} {says}\n"
    assert state_of(data) == before, "not even a file for the lock was made"


def state_of(data: Path) -> dict[Path, tuple[int, ...]]:
    found = {path: path.stat() for path in (data, *data.rglob("*"))}
    return {path: (one.st_ino, one.st_size, one.st_mtime_ns) for path, one in found.items()}


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = serve("--data", str(tmp_path / "data"), "--listen", address, "--metrics", "off")
        assert code == REFUSED
        assert "in use" in said
        assert "--listen HOST:PORT" in said
        code, said = serve("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--metrics", address)
        assert code == REFUSED
        assert "--metrics off" in said
    assert (tmp_path / "data" / CLEAN).exists(), "it had started, and stopped"


def test_a_name_that_is_none(tmp_path: Path) -> None:
    for option in ("--listen", "--metrics"):
        other = ("--metrics", "off") if option == "--listen" else ("--listen", "127.0.0.1:0")
        code, said = serve("--data", str(tmp_path / "data"), "--insecure", option, "a..b:1", *other)
        assert code == REFUSED
        assert "not a valid host name" in said


def test_beyond_this_machine_only_if_it_is_said(tmp_path: Path) -> None:
    code, said = serve("--data", str(tmp_path / "data"), "--listen", "0.0.0.0:0", "--metrics", "off")
    assert code == REFUSED
    assert "--insecure" in said
    assert not (tmp_path / "data").exists()
    with (
        BrokerProcess(tmp_path / "data", "--insecure", listen="0.0.0.0:0") as broker,
        RawClient(("127.0.0.1", broker.address[1])) as client,
    ):
        client.ask(ApiVersionsRequest(), 3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set", "num.partitions"], "key=value"),
        (["--set", "no.such=1"], "no.such"),
        (["--listen", "nonsense:port"], "HOST:PORT"),
        (["--config", "/nowhere.toml"], "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, options: list[str], says: str) -> None:
    code, said = serve("--data", str(tmp_path / "data"), *options)
    assert code == USAGE
    assert says in said
    assert not (tmp_path / "data").exists()


def test_a_directory_that_cannot_be_made() -> None:
    code, said = serve("--data", "/proc/no/such", "--listen", "127.0.0.1:0", "--metrics", "off")
    assert code in (REFUSED, FAILED)
    assert "/proc/no" in said
    assert "--listen" not in said, "the address is not what is wrong"


def test_metrics(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", metrics="127.0.0.1:0") as broker:
        (address,) = (line.split()[-1] for line in broker.said.splitlines() if "curl" in line)
        with urllib.request.urlopen(address, timeout=10) as page:
            assert b"tailrace_connections 0" in page.read()


def test_it_says_where_http_is_and_a_taken_port_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", http=True) as broker:
        assert f"  curl {broker.http_url}/v1/topics\n" in broker.said
        http = broker.http_url.removeprefix("http://")
        code, said = serve(
            "--data", str(tmp_path / "other"), "--listen", "127.0.0.1:0", "--metrics", "off", "--http", http
        )
    assert (code, "in use" in said, "--http off does without" in said) == (REFUSED, True, True), said
    assert (tmp_path / "other" / CLEAN).exists(), "it had started, and stopped"


def test_two_brokers_have_a_gateway_each_where_neither_was_given_a_port(tmp_path: Path) -> None:
    ports = set()
    with DefaultHttp(tmp_path / "a") as one, DefaultHttp(tmp_path / "b") as other:
        for broker in (one, other):
            (url,) = re.findall(r"curl (http://127\.0\.0\.1:\d+)/v1/topics", broker.said)
            with urllib.request.urlopen(f"{url}/readyz", timeout=30) as page:
                assert page.read() == b"ready\n"
            ports.add(url)
    assert len(ports) == 2


class DefaultHttp(BrokerProcess):
    def command(self) -> list[str]:
        words = super().command()
        at = words.index("--http")
        return words[:at] + words[at + 2 :]


WITHOUT_THE_EXTRA = """
import sys
sys.modules["starlette"] = None
from tailrace.cli.main import main
main()
"""


class NoExtra(BrokerProcess):
    def command(self) -> list[str]:
        serve = ["serve", "--data", str(self.data), "--listen", self.listen, "--metrics", "off"]
        return [sys.executable, "-c", WITHOUT_THE_EXTRA, *serve, "--no-monitor", *self.options]


def test_without_the_extra_there_is_no_http_and_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    with NoExtra(tmp_path / "data") as broker:
        assert "No HTTP: starlette not installed; pip install 'tailrace[gateway]'\n" in broker.said
        assert "/v1/topics" not in broker.said
        with RawClient(broker.address) as client:
            client.ask(ApiVersionsRequest(), 3)
        assert broker.stop() == 0
    with pytest.raises(BrokerNotReady, match=r"tailrace\[gateway\]"):
        NoExtra(tmp_path / "data", "--http", "127.0.0.1:0").start()


def test_a_reader_of_its_words_that_goes_away_does_not_leave_it_unclean(tmp_path: Path) -> None:
    """As in `tailrace serve | head -0`: it cannot say that it is ready, and ends; what it has is safe."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.close()
    try:
        time.sleep(3)
        process.terminate()
        process.wait(20)
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "data" / CLEAN).exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("meta.properties", "is Apache Kafka's data directory"), ("thesis.txt", "not a data directory of tailrace")],
)
def test_a_directory_that_is_not_ours_is_refused_and_not_touched(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).write_text("")
    code, said = serve("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics", "off")
    assert (code, reason in said) == (REFUSED, True), said
    assert "Nothing in it was changed. Choose a" in said
    assert [path.name for path in tmp_path.iterdir()] == [name]


# Kafka's server.properties: the keys of the file that Kafka 4 ships, with addresses and a directory of the test's.
STOCK = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://{host}:{port},CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def stock(directory: Path, host: str = "", port: int = 9092) -> Path:
    path = directory / "server.properties"
    path.write_text(STOCK.format(host=host, port=port, data=directory / "kraft-logs"))
    return path


def check(*options: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "tailrace", "serve", "--check", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_kafkas_stock_properties_file_starts_a_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = stock(tmp_path, "127.0.0.1", port)
    command = [sys.executable, "-m", "tailrace", "serve", "--config", str(config), "--metrics", "off"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"listening on 127.0.0.1:{port}\n"
            with RawClient(("127.0.0.1", port)) as client:
                client.ask(ApiVersionsRequest(), 3)
            process.terminate()
            warned = process.communicate(timeout=40)[1]
        finally:
            process.kill()
    assert process.returncode == 0
    assert "listener CONTROLLER://:9093 is left out" in warned
    assert "process.roles has no effect" in warned
    assert (tmp_path / "kraft-logs" / CLEAN).exists()


def test_an_empty_host_in_a_properties_file_needs_the_insecure_flag(tmp_path: Path) -> None:
    code, said = serve("--config", str(stock(tmp_path)))
    assert (code, "--insecure" in said) == (REFUSED, True), said
    assert "make the address of the listener 127.0.0.1:9092" in said, "no flag set it"
    assert check("--config", str(stock(tmp_path)))[0] == USAGE
    code, said, _ = check("--config", str(stock(tmp_path)), "--insecure", "--json")
    assert code == 0
    found = json.loads(said)
    assert found["valid"] is True
    assert found["data"] == str(tmp_path / "kraft-logs")
    assert found["listen"] == [{"address": "0.0.0.0:9092", "advertised": "localhost:9092"}]
    assert found["configs"]["num.partitions"] == {"value": "1", "from": f"{tmp_path / 'server.properties'}, line 16"}
    assert "process.roles" in found["ignored"]
    assert "process.roles" not in found["configs"]
    assert ["CONTROLLER" in warning for warning in found["warnings"]] == [True]
    assert not (tmp_path / "kraft-logs").exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("num.partitons=3", "line 27: there is no broker config 'num.partitons'. Did you mean num.partitions?"),
        ("num.partitions=many", "line 27: num.partitions cannot be 'many'"),
        ("listeners=SSL://127.0.0.1:9093", "line 27: listeners cannot be 'SSL://127.0.0.1:9093'"),
        ("listeners=CONTROLLER://127.0.0.1:9093", "line 27: no client could connect"),
        ("sasl.enabled.mechanisms=PLAIN", "line 27: sasl.enabled.mechanisms is not supported"),
        ("log.dirs=/a,/b", "line 27: log.dirs: there is one directory for logs, not 2: /a, /b"),
    ],
)
def test_a_mistake_in_a_properties_file_names_file_and_line(tmp_path: Path, line: str, says: str) -> None:
    path = stock(tmp_path, "127.0.0.1")
    path.write_text(f"{path.read_text()}\n{line}\n")
    code, said = serve("--config", str(path))
    assert (code, f"{path}, {says}" in said) == (USAGE, True), said
    code, printed, said = check("--config", str(path), "--json")
    assert (code, f"{path}, {says}" in said) == (USAGE, True), said
    assert says in json.loads(printed)["error"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('data = "here"\n\n[log.segment]\nbyte = 1\n', "line 4: there is no broker config 'log.segment.byte'."),
        ('dat = "here"\n', "line 1: there is no 'dat'. Did you mean data?"),
        ('data = "here"\nlistn = ["127.0.0.1:0"]\n', "line 2: there is no 'listn'. Did you mean listen?"),
    ],
)
def test_a_mistake_in_a_toml_file_names_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    code, said = serve("--config", str(path))
    assert (code, f"{path}, {says}" in said) == (USAGE, True), said


def test_a_check_says_what_would_count_and_json_needs_a_check(tmp_path: Path) -> None:
    code, said, _ = check("--config", str(stock(tmp_path, "127.0.0.1")), "--set", "num.partitions=6")
    assert code == 0
    assert "num.partitions = 6  (--set)\n" in said
    assert "listen   127.0.0.1:9092, advertised as localhost:9092\n" in said
    assert serve("--json", "--data", str(tmp_path / "data"))[0] == USAGE


def test_a_check_whose_reader_is_gone_ends_without_a_complaint() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tailrace", "serve", "--check", "--json"]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=30)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
