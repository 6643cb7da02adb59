"""Settings: a file and flags over it, addresses of all kinds, and words that say what to write instead."""

from pathlib import Path
from typing import Any

import pytest

from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.core.api import Endpoint
from tailrace.server.settings import BadSettings, HttpSettings, Listen, NotSafe, Settings, parse_address, read_settings


def test_the_defaults_are_reached_from_this_machine_alone() -> None:
    settings = read_settings()
    assert settings.data == "./tailrace-data"
    assert settings.listen == [Listen("127.0.0.1", 9092, Endpoint("127.0.0.1", 9092))]
    assert settings.metrics == Endpoint("127.0.0.1", 9464)
    assert settings.metrics_is_default
    assert settings.configs == {}


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("localhost:0", "localhost", 0),
        ("localhost", "localhost", 9092),
        ("19092", "127.0.0.1", 19092),
        (":19092", "0.0.0.0", 19092),
        ("[::1]:19092", "::1", 19092),
        ("[::1]", "::1", 9092),
        ("[::]:65535", "::", 65535),
        (" broker.example.org:1 ", "broker.example.org", 1),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Endpoint(host, port)


@pytest.mark.parametrize(
    "text", ["::1:9092", "localhost:kafka", "localhost:65536", "localhost:-1", "[::1]:x", "localhost:٣", "[::1", "[]:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadSettings, match="is not an address"):
        parse_address(text)


@pytest.mark.parametrize("listen", ["0.0.0.0:9092", ":9092", "[::]:9092", "192.168.1.7:9092", "example.org:9092"])
def test_beyond_this_machine_only_if_it_is_said(listen: str) -> None:
    with pytest.raises(NotSafe, match="--insecure"):
        read_settings(listen=[listen])
    assert read_settings(listen=[listen], insecure=True).listen[0].port == 9092


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "1"])
def test_on_this_machine_without_a_word(listen: str) -> None:
    assert read_settings(listen=[listen]).listen[0].port == 1


def test_one_address_of_many_is_enough_to_refuse() -> None:
    with pytest.raises(NotSafe):
        read_settings(listen=["127.0.0.1:9092", "0.0.0.0:9093"])


@pytest.mark.parametrize(
    ("listen", "advertise", "told"),
    [
        ("127.0.0.1:5", None, Endpoint("127.0.0.1", 5)),
        ("127.0.0.1:0", None, None),
        ("0.0.0.0:5", None, None),
        ("[::]:5", None, None),
        ("localhost:5", None, Endpoint("localhost", 5)),
        ("0.0.0.0:5", "kafka.example.org:7", Endpoint("kafka.example.org", 7)),
        ("0.0.0.0:5", "kafka.example.org:0", Endpoint("kafka.example.org", 5)),
    ],
)
def test_what_clients_are_told(listen: str, advertise: str | None, told: Endpoint | None) -> None:
    settings = read_settings(listen=[listen], advertise=[advertise] if advertise else (), insecure=True)
    assert settings.listen[0].advertised == told


def test_every_listener_or_none_is_advertised() -> None:
    with pytest.raises(BadSettings, match="there are 2 of those, not 1"):
        read_settings(listen=["1", "2"], advertise=["a:1"])


@pytest.mark.parametrize(
    ("http", "address", "is_default"),
    [(None, Endpoint("127.0.0.1", 9080), True), ("127.0.0.1:9080", Endpoint("127.0.0.1", 9080), False),
     ("localhost", Endpoint("localhost", 9080), False), ("0", Endpoint("127.0.0.1", 0), False)],
)  # fmt: skip
def test_where_the_gateway_is(http: str | None, address: Endpoint, is_default: bool) -> None:
    assert read_settings(http=http).http == HttpSettings(address, is_default)


def test_a_gateway_beyond_this_machine_needs_a_token_or_the_insecure_flag(tmp_path: Path) -> None:
    with pytest.raises(NotSafe, match="--http-token-file FILE"):
        read_settings(http="0.0.0.0:9080")
    assert read_settings(http="0.0.0.0:9080", insecure=True).http is not None
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    settings = read_settings(http="0.0.0.0:9080", http_token_file=str(token))
    assert settings.http == HttpSettings(Endpoint("0.0.0.0", 9080), False, "0123456789abcdef")
    with pytest.raises(NotSafe, match="the listener"):
        read_settings(listen=["0.0.0.0:9092"], http="0.0.0.0:9080", http_token_file=str(token))


def test_a_token_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        read_settings(http_token_file=str(tmp_path / "missing"))


def test_the_gateway_can_be_set_and_turned_off_in_the_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    path = a_file(tmp_path, f"http = '127.0.0.1:1'\n'http-token-file' = '{token}'\ntailrace.http.waiting.max = 7\n")
    settings = read_settings(config_file=path)
    assert settings.http == HttpSettings(Endpoint("127.0.0.1", 1), False, "0123456789abcdef")
    assert settings.configs == {"tailrace.http.waiting.max": "7"}
    assert read_settings(config_file=path, http="off").http is None
    assert read_settings(config_file=a_file(tmp_path, 'http = "off"')).http is None


def a_file(directory: Path, text: str) -> str:
    path = directory / "broker.toml"
    path.write_text(text)
    return str(path)


FILE = """
data = "/var/lib/tailrace"
listen = ["127.0.0.1:1", "[::1]:2"]
advertise = ["a:1", "b:2"]
metrics = "off"
num.partitions = 6
"auto.create.topics.enable" = false
[log.segment]
bytes = 2000000
[log.cleanup]
policy = ["delete", "compact"]
"""


def test_a_file(tmp_path: Path) -> None:
    settings = read_settings(config_file=a_file(tmp_path, FILE))
    assert settings == Settings(
        data="/var/lib/tailrace",
        listen=[Listen("127.0.0.1", 1, Endpoint("a", 1)), Listen("::1", 2, Endpoint("b", 2))],
        metrics=None,
        metrics_is_default=False,
        http=HttpSettings(Endpoint("127.0.0.1", 9080), is_default=True),
        configs={
            "num.partitions": "6",
            "auto.create.topics.enable": "false",
            "log.segment.bytes": "2000000",
            "log.cleanup.policy": "delete,compact",
        },
    )


def test_flags_count_more_than_the_file(tmp_path: Path) -> None:
    settings = read_settings(
        config_file=a_file(tmp_path, FILE),
        data="here",
        listen=["3"],
        advertise=["c:3"],
        metrics="127.0.0.1:4",
        configs=["num.partitions = 7"],
    )
    assert settings.data == "here"
    assert settings.listen == [Listen("127.0.0.1", 3, Endpoint("c", 3))]
    assert settings.metrics == Endpoint("127.0.0.1", 4)
    assert settings.configs["num.partitions"] == "7"
    assert settings.configs["log.segment.bytes"] == "2000000"


def test_one_address_needs_no_brackets(tmp_path: Path) -> None:
    assert read_settings(config_file=a_file(tmp_path, 'listen = "127.0.0.1:7"')).listen[0].port == 7


def test_kafkas_configs_that_begin_like_a_flag_are_not_that_flag(tmp_path: Path) -> None:
    settings = read_settings(config_file=a_file(tmp_path, 'metrics.num.samples = 2\nmetrics.recording.level = "INFO"'))
    assert settings.metrics == read_settings().metrics
    assert settings.metrics_is_default
    assert settings.configs["metrics.num.samples"] == "2"


def test_a_file_can_be_insecure_too(tmp_path: Path) -> None:
    text = 'listen = "0.0.0.0:9092"\ninsecure = {}'
    assert read_settings(config_file=a_file(tmp_path, text.format("true"))).listen[0].host == "0.0.0.0"
    with pytest.raises(NotSafe):
        read_settings(config_file=a_file(tmp_path, text.format("false")))
    with pytest.raises(NotSafe):
        read_settings(config_file=a_file(tmp_path, text.format('"yes"')))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"configs": ["num.partitions"]}, "--set takes key=value"),
        ({"configs": ["num.partitons=3"]}, "num.partitons"),
        ({"configs": ["num.partitions=many"]}, "whole number"),
        ({"configs": ["num.partitions=0"]}, "from 1"),
        ({"config_file": "/nowhere/broker.toml"}, "/nowhere/broker.toml cannot be read: No such file"),
        ({"listen": ["a:b"]}, "write HOST:PORT"),
        ({"metrics": "a:b"}, "write HOST:PORT"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        read_settings(**options)


@pytest.mark.parametrize("text", [b"data = ", b"\xff\xfe", b"data = 'a'\ndata = 'b'"])
def test_a_file_that_is_no_toml(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "broker.toml"
    path.write_bytes(text)
    with pytest.raises(BadSettings, match="is not valid TOML"):
        read_settings(config_file=str(path))


# Kafka's names for what the flags say


def test_kafkas_names_for_addresses_and_the_directory_are_taken() -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:1, PLAINTEXT://[::1]:2"
    advertised = "advertised.listeners=PLAINTEXT://a:1,PLAINTEXT://b:2"
    settings = read_settings(configs=[listeners, advertised, "log.dirs=/var/lib/kafka"])
    assert settings.listen == [Listen("127.0.0.1", 1, Endpoint("a", 1)), Listen("::1", 2, Endpoint("b", 2))]
    assert settings.data == "/var/lib/kafka"
    assert settings.configs == {}
    assert read_settings(configs=["log.dir=/srv"]).data == "/srv"


def test_the_flags_count_more() -> None:
    settings = read_settings(data="here", listen=["7"], configs=["listeners=PLAINTEXT://127.0.0.1:1", "log.dir=/srv"])
    assert (settings.data, settings.listen[0].port) == ("here", 7)


def test_kafkas_empty_host_is_every_address_and_as_unsafe() -> None:
    with pytest.raises(NotSafe):
        read_settings(configs=["listeners=PLAINTEXT://:9092"])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("listeners=SASL_SSL://127.0.0.1:9092", "write PLAINTEXT://HOST:PORT"),
        ("listeners=127.0.0.1:9092", "write PLAINTEXT://HOST:PORT"),
        ("log.dirs=/a,/b", "there is one directory for logs, not 2: /a, /b"),
        ("log.segment.byte=1", "Did you mean log.segment.bytes?"),
        ("retention.ms=1", "Did you mean log.retention.ms?"),
        ("ssl.keystore.location=/k", "ssl.keystore.location is not supported: TLS"),
        ("nothing.like.it=1", "there is no broker config 'nothing.like.it'$"),
    ],
)
def test_what_cannot_be_is_said_with_what_can(config: str, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        read_settings(configs=[config])


def test_the_config_for_processors_that_stay_awake_is_accepted_and_has_no_effect() -> None:
    name = "tailrace.awake.processors"
    assert read_settings(configs=[f"{name}=8"]).configs == {name: "8"}
    assert "no longer keeps idle processors awake" in BrokerConfigs({name: "8"}).ignored[name]
