"""TLS and SASL as Apache Kafka has them; run with `TAILRACE_COMPAT=kafka`, as ours has neither yet."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from client.conftest import create_topic, options, write
from client.test_fetch import read
from compat.brokers import HOST, KafkaProcess, against_kafka, free_port
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tailrace.client.cluster.cluster import Cluster
from tailrace.client.errors import AuthenticationFailed, ClientError, GaveUp, TlsFailed

pytestmark = pytest.mark.skipif(not against_kafka(), reason="TAILRACE_COMPAT is not kafka")


class SecuredKafka(KafkaProcess):
    """One more listener, with TLS and logins, and one with TLS that wants to see a certificate."""

    def __init__(self, directory: Path, certificate: Path) -> None:
        self.login_port, self.mutual_port = free_port(), free_port()
        self._certificate = certificate
        super().__init__(directory)

    def _settings(self, controller_port: int) -> dict[str, object]:
        settings = super()._settings(controller_port)
        more = f",SASL_SSL://{HOST}:{self.login_port},SSL://{HOST}:{self.mutual_port}"
        plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="secret";'
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        store = {"type": "PEM", "location": self._certificate}
        return {
            **settings,
            "listeners": f"{settings['listeners']}{more}",
            "advertised.listeners": f"{settings['advertised.listeners']}{more}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
            **{f"ssl.keystore.{name}": value for name, value in store.items()},
            **{f"ssl.truststore.{name}": value for name, value in store.items()},
            "listener.name.ssl.ssl.client.auth": "required",
        }


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kafka", "-days", "2"]
    command += ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", str(file), "-out", "-"]
    made = subprocess.run(command, check=True, capture_output=True).stdout
    file.write_bytes(file.read_bytes() + made)
    return file


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[SecuredKafka]:
    with contextlib.closing(SecuredKafka(tmp_path_factory.mktemp("secured") / "broker", certificate)) as broker:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion("me", ScramCredentialInfo(mechanism, 4096), b"secret")
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(20)
        yield broker


def a_login(kafka: SecuredKafka, certificate: Path, mechanism: str, password: str = "secret") -> Cluster:
    login = {"sasl_mechanism": mechanism, "sasl_username": "me", "sasl_password": password}
    trust = {"security_protocol": "SASL_SSL", "ssl_ca_location": str(certificate), "default_api_timeout_ms": "20000"}
    return Cluster(options(f"{HOST}:{kafka.login_port}", **login, **trust))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_over_tls(kafka: SecuredKafka, certificate: Path, mechanism: str) -> None:
    with contextlib.closing(a_login(kafka, certificate, mechanism)) as cluster:
        create_topic(cluster, mechanism)
        write(cluster, mechanism, b"a", b"b" * 100_000)
        assert [len(value) for _, value in read(cluster, mechanism, 0, 2)] == [1, 100_000]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(kafka: SecuredKafka, certificate: Path, mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed, match="Authentication failed"):
        a_login(kafka, certificate, mechanism, "guessed").all_topics()


def test_a_certificate_of_ours(kafka: SecuredKafka, certificate: Path) -> None:
    trust = {"security_protocol": "SSL", "ssl_ca_location": str(certificate), "default_api_timeout_ms": "1000"}
    bootstrap = f"{HOST}:{kafka.mutual_port}"
    given = options(bootstrap, **trust, ssl_certificate_location=str(certificate), ssl_key_location=str(certificate))
    with contextlib.closing(Cluster(given)) as cluster:
        assert cluster.all_topics() is not None
    with pytest.raises((TlsFailed, GaveUp), match=r"certificate|alert"):
        Cluster(options(bootstrap, **trust)).all_topics()


def test_no_tls_where_it_is_wanted(kafka: SecuredKafka) -> None:
    with pytest.raises(ClientError):
        Cluster(options(f"{HOST}:{kafka.login_port}", default_api_timeout_ms="500")).all_topics()
