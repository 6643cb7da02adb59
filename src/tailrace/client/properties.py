"""Kafka's property names, Java's and librdkafka's, parsed into `options`: one table of those that are supported.

An unsupported property is an error, and not ignored: it would silently change nothing. As with Kafka's clients, `ssl.*`
and `sasl.*` are only used if `security.protocol` needs them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tailrace.client.errors import BadOption
from tailrace.client.options import Address, ClientOptions, Isolation, Sasl, Tls

DEFAULT_PORT = 9092
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_INT32_MAX = 0x7FFFFFFF


class Property(NamedTuple):
    setting: str  # a field of ClientOptions, or of Tls and Sasl behind a dot, or a name that only this module uses
    parse: Callable[[str], Any]  # raises ValueError with the reason


def servers(text: str) -> tuple[Address, ...]:
    found = tuple(_address(part.strip()) for part in text.split(",") if part.strip())
    if not found:
        raise ValueError("it names no server")
    return found


def _address(text: str) -> Address:
    matched = re.fullmatch(r"(?:\w+://)?(?:\[([^]]+)\]|([^:\[\]/]+))(?::(\d{1,5}))?", text)
    if matched is None or not 0 < (port := int(matched[3] or DEFAULT_PORT)) < 65_536:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return matched[1] or matched[2], port


def _number(least: int, most: int = _INT32_MAX) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"-?\d{1,18}", text.strip()) or not least <= int(text) <= most:
            raise ValueError(f"it is a number from {least} to {most}")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    return _number(1)(text) / 1000


def _truth(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return text.strip().lower() == "true"


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        found = next((value for value in values if value.lower() == text.strip().lower()), None)
        if found is None:
            raise ValueError(f"it is one of {', '.join(value or '(empty)' for value in values)}")
        return found

    return parse


def _isolation(text: str) -> Isolation:
    return Isolation[_one_of("read_uncommitted", "read_committed")(text).upper()]


def _checks_hostname(text: str) -> bool:
    return _one_of("https", "", "none")(text) == "https"


def _pem(text: str) -> str:
    if text.strip().upper() != "PEM":
        raise ValueError("only PEM files can be read here; `keytool` and `openssl` convert Java's key stores")
    return "PEM"


def _jaas(text: str) -> tuple[str, str]:
    """The user and the password in a line such as `…ScramLoginModule required username="me" password="secret";`"""
    found = dict(re.findall(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"', text))
    if "LoginModule" not in text or not {"username", "password"} <= found.keys():
        raise ValueError('it is a line like `…PlainLoginModule required username="…" password="…";`')
    return _unescaped(found["username"]), _unescaped(found["password"])


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


PROPERTIES: dict[str, Property] = {
    "bootstrap.servers": Property("bootstrap", servers),
    "client.id": Property("client_id", str),
    "request.timeout.ms": Property("request_timeout_s", _seconds),
    "socket.timeout.ms": Property("request_timeout_s", _seconds),
    "default.api.timeout.ms": Property("retry_timeout_s", _seconds),
    "socket.connection.setup.timeout.ms": Property("connect_timeout_s", _seconds),
    "retry.backoff.ms": Property("retry_backoff_s", _seconds),
    "retry.backoff.max.ms": Property("retry_backoff_max_s", _seconds),
    "metadata.max.age.ms": Property("metadata_max_age_s", _seconds),
    "isolation.level": Property("isolation", _isolation),
    "fetch.min.bytes": Property("fetch_min_bytes", _number(0)),
    "fetch.max.wait.ms": Property("fetch_max_wait_ms", _number(0)),
    "fetch.wait.max.ms": Property("fetch_max_wait_ms", _number(0)),
    "fetch.max.bytes": Property("fetch_max_bytes", _number(1)),
    "max.partition.fetch.bytes": Property("max_partition_fetch_bytes", _number(1)),
    "check.crcs": Property("check_crcs", _truth),
    "security.protocol": Property("protocol", _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    "ssl.ca.location": Property("tls.ca_file", str),
    "ssl.truststore.location": Property("tls.ca_file", str),
    "ssl.truststore.certificates": Property("tls.ca_text", str),
    "ssl.truststore.type": Property("truststore", _pem),
    "ssl.certificate.location": Property("tls.certificate_file", str),
    "ssl.key.location": Property("tls.key_file", str),
    "ssl.key.password": Property("tls.key_password", str),
    "ssl.keystore.location": Property("tls.certificate_file", str),  # key and certificates in one file
    "ssl.keystore.type": Property("keystore", _pem),
    "ssl.endpoint.identification.algorithm": Property("tls.check_hostname", _checks_hostname),
    "enable.ssl.certificate.verification": Property("tls.verify", _truth),
    "sasl.mechanism": Property("sasl.mechanism", _one_of(*MECHANISMS)),
    "sasl.mechanisms": Property("sasl.mechanism", _one_of(*MECHANISMS)),
    "sasl.username": Property("sasl.username", str),
    "sasl.password": Property("sasl.password", str),
    "sasl.jaas.config": Property("jaas", _jaas),
}
_SECRET = ("password", "jaas")
_STORES = {"ssl.truststore.location": "ssl.truststore.type", "ssl.keystore.location": "ssl.keystore.type"}


def options_from(properties: Mapping[str, str]) -> ClientOptions:
    settings = {PROPERTIES[name].setting: value for name, value in _parsed(properties).items()}
    if "bootstrap" not in settings:
        raise BadOption("bootstrap.servers is missing: the HOST:PORT of a broker, several with commas")
    for location, kind in _STORES.items():
        if location in properties and kind not in properties:
            raise BadOption(f"{location} needs {kind}=PEM: other store types are not supported")
    protocol = settings.get("protocol", "PLAINTEXT")
    plain = {name: value for name, value in settings.items() if name in ClientOptions.__dataclass_fields__}
    return ClientOptions(
        **plain,
        tls=Tls(**_inside("tls", settings)) if protocol.endswith("SSL") else None,
        sasl=_sasl(settings) if protocol.startswith("SASL") else None,
    )


def _parsed(properties: Mapping[str, str]) -> dict[str, Any]:
    parsed = {}
    for name, text in properties.items():
        known = PROPERTIES.get(name)
        if known is None:
            raise BadOption(f"unknown property {name}; supported are: {', '.join(PROPERTIES)}")
        try:
            parsed[name] = known.parse(text)
        except ValueError as error:
            shown = "" if any(word in name for word in _SECRET) else f"={text}"
            raise BadOption(f"{name}{shown}: {error}") from None
    return parsed


def _inside(what: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {name.partition(".")[2]: value for name, value in settings.items() if name.startswith(what + ".")}


def _sasl(settings: dict[str, Any]) -> Sasl:
    found = _inside("sasl", settings)
    if "jaas" in settings:
        found["username"], found["password"] = settings["jaas"]
    if "mechanism" not in found:
        raise BadOption(f"sasl.mechanism is missing; it is one of {', '.join(MECHANISMS)}")
    for needed in ("username", "password"):
        if needed not in found:
            raise BadOption(f"sasl.{needed} is missing; sasl.jaas.config does as well")
    return Sasl(**found)
