import pickle
from typing import Any

import pytest

from tailrace.client.errors import BadOption, OffsetOutOfRange, Refused, TopicRecreated
from tailrace.client.options import ClientOptions, Isolation, Sasl, Tls
from tailrace.client.properties import PROPERTIES

HERE = {"bootstrap.servers": "localhost"}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="s\\"e;cret=";'


def of(**properties: str) -> ClientOptions:
    return ClientOptions.from_properties(
        {**HERE, **{name.replace("_", "."): text for name, text in properties.items()}}
    )


def test_defaults_are_those_of_a_plain_connection() -> None:
    options = of()
    assert options == ClientOptions((("localhost", 9092),))
    assert (options.tls, options.sasl, options.retry_timeout_s) == (None, None, 60)


def test_properties_have_kafkas_names() -> None:
    options = of(
        bootstrap_servers="a:1, PLAINTEXT://b.example:65535,[::1]:9093",
        request_timeout_ms="1500",
        isolation_level="read_committed",
        max_partition_fetch_bytes="1048576",
    )
    assert options.bootstrap == (("a", 1), ("b.example", 65535), ("::1", 9093))
    assert options.request_timeout_s == 1.5
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.max_partition_fetch_bytes == 1 << 20


def test_a_property_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(BadOption, match=r"^unknown property linger\.ms; supported are") as error:
        of(linger_ms="5")
    assert all(name in str(error.value) for name in PROPERTIES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bootstrap_servers", ""),
        ("bootstrap_servers", "host:port"),
        ("bootstrap_servers", "host:70000"),
        ("request_timeout_ms", "soon"),
        ("fetch_max_bytes", "0"),
        ("fetch_max_bytes", "99999999999"),
        ("isolation_level", "serializable"),
        ("security_protocol", "TLS"),
        ("sasl_mechanism", "GSSAPI"),
        ("ssl_truststore_type", "JKS"),
        ("check_crcs", "maybe"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(name: str, text: str) -> None:
    with pytest.raises(BadOption, match=name.replace("_", r"\.")):
        of(**{name: text})


def test_without_servers_there_is_nothing_to_talk_to() -> None:
    with pytest.raises(BadOption, match=r"bootstrap\.servers is missing"):
        ClientOptions.from_properties({})


def test_security_comes_from_the_protocol() -> None:
    given = {"ssl_ca_location": "/ca.pem", "sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "x"}
    assert of(**given).tls is None
    assert of(**given).sasl is None
    assert of(**given, security_protocol="ssl").tls == Tls(ca_file="/ca.pem")
    both = of(**given, security_protocol="SASL_SSL", ssl_endpoint_identification_algorithm="")
    assert both.tls == Tls(ca_file="/ca.pem", check_hostname=False)
    assert both.sasl == Sasl("PLAIN", "me", "x")


def test_a_jaas_line_is_understood() -> None:
    options = of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="scram-sha-256", sasl_jaas_config=JAAS)
    assert options.sasl == Sasl("SCRAM-SHA-256", "me", 's"e;cret=')


@pytest.mark.parametrize(
    "given",
    [
        {"sasl_username": "me", "sasl_password": "x"},
        {"sasl_mechanism": "PLAIN", "sasl_username": "me"},
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": "SomeLoginModule required secret"},
    ],
)
def test_half_of_a_login_is_refused_and_no_secret_shown(given: dict[str, str]) -> None:
    with pytest.raises(BadOption) as error:
        of(**given, security_protocol="SASL_PLAINTEXT")
    assert "secret" not in str(error.value)


def test_a_java_key_store_is_refused_in_words() -> None:
    with pytest.raises(BadOption, match=r"ssl\.truststore\.type=PEM"):
        of(security_protocol="SSL", ssl_truststore_location="/store.jks")


def test_options_can_be_sent_to_a_worker_and_compared() -> None:
    options = of(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="me", sasl_password="secret")
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert hash(copy) == hash(options)
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    "error",
    [
        OffsetOutOfRange("orders", 0, 5, 10, 20),
        OffsetOutOfRange("orders", 0, 25, 10, 20),
        TopicRecreated("orders", b"1" * 16, b"2" * 16),
        Refused("orders-0", 6),
        Refused("orders-0", 4242, "newer than we are"),
    ],
)
def test_errors_come_back_from_a_worker_as_they_were(error: Any) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_what_is_gone_is_named() -> None:
    assert "offsets 5 to 9 are gone" in str(OffsetOutOfRange("orders", 0, 5, 10, 20))
