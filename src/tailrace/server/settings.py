"""Reads what a broker is started with: the file, and the flags over it.

The file is TOML. Its keys are those of the flags (`data`, `listen`, `advertise`, `metrics`, `insecure`) and of the
broker's configs: `log.segment.bytes = 1000000`, or `bytes = 1000000` under `[log.segment]`. Kafka's names for the flags
are taken, too: `listeners`, `advertised.listeners`, `log.dirs`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.configs.keys import InvalidConfig, parts_of
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.core.api import Endpoint

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

DATA = "./tailrace-data"
LISTEN = "127.0.0.1:9092"
METRICS = "127.0.0.1:9464"
PORT = 9092

_HERE = ("localhost", "127.0.0.1", "::1")
_OWN_KEYS = ("data", "listen", "advertise", "metrics", "insecure")


class BadSettings(Exception):
    """A broker cannot be started so: what is wrong, and what to write instead."""


class NotSafe(BadSettings):
    """It could, but anyone could then reach it."""


class Listen(NamedTuple):
    """An address to listen on, and the address advertised to clients; None is the one that they have connected to."""

    host: str
    port: int
    advertised: Endpoint | None = None


class Settings(NamedTuple):
    data: str
    listen: list[Listen]
    metrics: Endpoint | None
    metrics_is_default: bool
    configs: dict[str, str]


def read_settings(
    *,
    config_file: str | None = None,
    data: str | None = None,
    listen: Sequence[str] = (),
    advertise: Sequence[str] = (),
    metrics: str | None = None,
    configs: Sequence[str] = (),
    insecure: bool = False,
) -> Settings:
    """Raises BadSettings, and NotSafe where an address beyond this machine is served without authentication."""
    file = _read_file(config_file) if config_file is not None else {}
    values = {key: value for key, value in _flatten(file) if key not in _OWN_KEYS}
    # `metrics.num.samples = 2` makes `metrics` a table, which is none of ours.
    own = {key: file[key] for key in _OWN_KEYS if key in file and not isinstance(file[key], dict)}
    values.update(_assignments(configs))
    listeners, advertised = _pop_listeners(values, "listeners"), _pop_listeners(values, "advertised.listeners")
    addresses = [parse_address(text) for text in listen or _texts(own, "listen") or listeners or [LISTEN]]
    told = [parse_address(text) for text in advertise or _texts(own, "advertise") or advertised]
    directory = _pop_directory(values)
    if told and len(told) != len(addresses):
        raise BadSettings(f"--advertise goes with each --listen: there are {len(addresses)} of those, not {len(told)}")
    watched = metrics or _text(own, "metrics")
    pages = None if watched in ("off", "none") else parse_address(watched or METRICS)
    if not (insecure or own.get("insecure") is True):
        _require_loopback(addresses, "read and delete your topics", "--listen")
        _require_loopback([pages] if pages else [], "see what you have", "--metrics")
    try:
        BrokerConfigs(values)
    except InvalidConfig as error:
        raise BadSettings(str(error)) from None
    return Settings(
        data=data or _text(own, "data") or directory or DATA,
        listen=[
            Listen(address.host, address.port, _advertised(address, told[n] if told else None))
            for n, address in enumerate(addresses)
        ],
        metrics=pages,
        metrics_is_default=watched is None,
        configs=values,
    )


def _read_file(path: str) -> dict[str, object]:
    import tomllib  # for those who have a file: most starts have none, and wait for what they do not need

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield prefix + key, str(value).lower()
        elif isinstance(value, list):
            yield prefix + key, ",".join(map(str, value))
        else:
            yield prefix + key, str(value)


def _texts(own: Mapping[str, object], key: str) -> list[str]:
    value = own.get(key, [])
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _text(own: Mapping[str, object], key: str) -> str | None:
    return str(own[key]) if key in own else None


def _assignments(texts: Sequence[str]) -> dict[str, str]:
    values = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise BadSettings(f"--set takes key=value, not {text!r}")
        values[key.strip()] = value.strip()
    return values


def _pop_listeners(values: dict[str, str], key: str) -> list[str]:
    """The addresses in one of Kafka's lists of listeners, `PLAINTEXT://host:port`."""
    addresses = []
    for listener in parts_of(values.pop(key, "")):
        protocol, separator, address = listener.partition("://")
        if not separator or protocol != "PLAINTEXT":
            raise BadSettings(f"{key} cannot be {listener!r}: write PLAINTEXT://HOST:PORT; there is no TLS or SASL yet")
        addresses.append(address)
    return addresses


def _pop_directory(values: dict[str, str]) -> str | None:
    """The directory by one of Kafka's names for it."""
    given = {directory for key in ("log.dirs", "log.dir") for directory in parts_of(values.pop(key, ""))}
    if len(given) > 1:
        raise BadSettings(f"there is one directory for logs, not {len(given)}: {', '.join(sorted(given))}")
    return given.pop() if given else None


def parse_address(text: str) -> Endpoint:
    """HOST:PORT, [IPv6]:PORT, HOST, :PORT or PORT; a port that is not given is 9092. Raises BadSettings."""
    text = text.strip()
    if _is_number(text):
        host, port = "127.0.0.1", text
    elif text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = (rest.removeprefix(":") or str(PORT)) if host and bracket else ""
    elif text.count(":") > 1:
        raise BadSettings(f"{text!r} is no address: an IPv6 address stands in brackets, as in [::1]:{PORT}")
    else:
        host, _, port = text.partition(":")
        port = port or str(PORT)
    if not _is_number(port) or int(port) > 65535:
        raise BadSettings(f"{text!r} is no address: write HOST:PORT, as in {LISTEN}")
    return Endpoint(host or "0.0.0.0", int(port))  # noqa: S104 - what was asked for; see _require_loopback


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _require_loopback(addresses: Sequence[Endpoint], risk: str, flag: str) -> None:
    for address in addresses:
        if not _is_loopback(address.host):
            raise NotSafe(
                f"refusing to listen on {address.host} without authentication: anyone who reaches this port could "
                f"{risk}.\n"
                "  On a network you trust:   tailrace serve --insecure …\n"
                f"  Else leave {flag} away: 127.0.0.1 is reached from this machine alone."
            )


def _is_loopback(host: str) -> bool:
    return host in _HERE or ((address := _ip_address(host)) is not None and address.is_loopback)


def _ip_address(host: str) -> "IPv4Address | IPv6Address | None":
    """None of a name."""
    from ipaddress import ip_address  # for those who serve others: who starts a broker for itself does not wait for it

    try:
        return ip_address(host)
    except ValueError:
        return None


def _advertised(listen: Endpoint, told: Endpoint | None) -> Endpoint | None:
    """What clients are told: None where that is the address at which they have reached us."""
    if told is not None:
        return told if told.port or not listen.port else Endpoint(told.host, listen.port)
    if not listen.port or _is_wildcard(listen.host):
        return None
    return Endpoint(listen.host, listen.port)  # also of a name: clients may need it, to find their way


def _is_wildcard(host: str) -> bool:
    return host not in _HERE and (address := _ip_address(host)) is not None and address.is_unspecified
