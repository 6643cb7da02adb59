"""Reads the settings that a broker is started with: the file, and the flags that override it.

The file is TOML, or Kafka's `server.properties` by its suffix (`config_file`). Its keys are those of the flags (`data`,
`listen`, `advertise`, `metrics`, `http`, `http-token-file`, `insecure`) and of the broker's configs:
`log.segment.bytes = 1000000`, or `bytes = 1000000` under `[log.segment]`. Kafka's names for the flags are taken, too:
`listeners`, `advertised.listeners`, `log.dirs`. An error about a key of the file names the file and the line.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.configs.ignored import PROTOCOL_MAP
from tailrace.broker.configs.keys import InvalidConfig, UnknownConfig, parts_of
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.configs.tables import BROKER_KEYS
from tailrace.broker.core.api import Endpoint
from tailrace.util.host_port import BadAddress, is_loopback, is_wildcard, parse

if TYPE_CHECKING:
    from tailrace.server.config_file import ConfigFile

DATA = "./tailrace-data"
LISTEN = "127.0.0.1:9092"
METRICS = "127.0.0.1:9464"
HTTP_PORT = 9080
HTTP = f"127.0.0.1:{HTTP_PORT}"
PORT = 9092

_OWN_KEYS = ("data", "listen", "advertise", "metrics", "http", "http-token-file", "insecure")
_OFF = ("off", "none")


class BadSettings(Exception):
    """Invalid settings: the message says what is wrong, and what to write instead."""


class NotSafe(BadSettings):
    """The broker could start, but would be open to anyone on the network."""


class Listen(NamedTuple):
    """An address to listen on, and the address advertised to clients; None for the one that they have connected to."""

    host: str
    port: int
    advertised: Endpoint | None = None


class HttpSettings(NamedTuple):
    """Where the gateway serves HTTP, and the token that its clients need; None for none."""

    address: Endpoint
    is_default: bool  # then another port may take its place, and a gateway that is not installed is no error
    token: str | None = None


class Settings(NamedTuple):
    data: str
    listen: list[Listen]
    metrics: Endpoint | None
    metrics_is_default: bool
    http: HttpSettings | None
    configs: dict[str, str]


class Review(NamedTuple):
    """Settings, and remarks on them: places by key, reasons by ignored key, and warnings."""

    settings: Settings
    places: dict[str, str]
    ignored: dict[str, str]
    warnings: list[str]


def read_settings(
    *,
    config_file: str | None = None,
    data: str | None = None,
    listen: Sequence[str] = (),
    advertise: Sequence[str] = (),
    metrics: str | None = None,
    http: str | None = None,
    http_token_file: str | None = None,
    configs: Sequence[str] = (),
    insecure: bool = False,
) -> Settings:
    """Raises BadSettings, and NotSafe if a network address would be served without authentication."""
    return review_settings(
        config_file=config_file,
        data=data,
        listen=listen,
        advertise=advertise,
        metrics=metrics,
        http=http,
        http_token_file=http_token_file,
        configs=configs,
        insecure=insecure,
    ).settings


def review_settings(
    *,
    config_file: str | None = None,
    data: str | None = None,
    listen: Sequence[str] = (),
    advertise: Sequence[str] = (),
    metrics: str | None = None,
    http: str | None = None,
    http_token_file: str | None = None,
    configs: Sequence[str] = (),
    insecure: bool = False,
) -> Review:
    """Like `read_settings`, with the places of the values and the warnings of a start."""
    file = _read_file(config_file) if config_file is not None else None
    given = _Given(file, _assignments(configs))
    own = _own_values(file)
    listeners = given.pop_listeners(bool(listen or own.get("listen")))
    addresses = [parse_address(text) for text in listen or _texts(own, "listen") or listeners.addresses or [LISTEN]]
    told = [parse_address(text) for text in advertise or _texts(own, "advertise") or listeners.advertised]
    directory = given.pop_directory()
    if told and len(told) != len(addresses):
        raise BadSettings(f"--advertise goes with each --listen: there are {len(addresses)} of those, not {len(told)}")
    watched = metrics or _text(own, "metrics")
    pages = None if watched in _OFF else parse_address(watched or METRICS)
    gateway = _http(http or _text(own, "http"), http_token_file or _text(own, "http-token-file"))
    ignored = given.check()
    if not (insecure or own.get("insecure") is True):
        _require_loopback(addresses, "read and delete your topics", "listener")
        _require_loopback([pages] if pages else [], "see what you have", "metrics page")
        if gateway is not None and gateway.token is None:
            _require_loopback([gateway.address], "read and write your topics", "gateway", "--http-token-file FILE")
    settings = Settings(
        data=data or _text(own, "data") or directory or DATA,
        listen=[
            Listen(address.host, address.port, _advertised(address, told[n] if told else None))
            for n, address in enumerate(addresses)
        ],
        metrics=pages,
        metrics_is_default=watched is None,
        http=gateway,
        configs=given.values,
    )
    return Review(settings, {key: given.place(key) for key in given.values}, ignored, listeners.warnings)


def _read_file(path: str) -> "ConfigFile":
    from tailrace.server.config_file import BadFile, read_config_file  # imported late: most starts have no file

    try:
        return read_config_file(path)
    except BadFile as error:
        raise BadSettings(str(error)) from None


def _own_values(file: "ConfigFile | None") -> dict[str, object]:
    """The values of the flags' names. `metrics.num.samples = 2` makes `metrics` a table, which is ignored here."""
    if file is None:
        return {}
    own = {key: file.tree[key] for key in _OWN_KEYS if key in file.tree and not isinstance(file.tree[key], dict)}
    if file.is_properties:
        own.update({key: parts_of(str(own[key])) for key in ("listen", "advertise") if key in own})
        own.update({key: own[key] == "true" for key in ("insecure",) if key in own})
    return own


class _Listeners(NamedTuple):
    addresses: list[str]
    advertised: list[str]
    warnings: list[str]


class _Given:
    """The broker's configs: those of the file, overridden by --set."""

    def __init__(self, file: "ConfigFile | None", assigned: Mapping[str, str]) -> None:
        self._file = file
        self._assigned = assigned
        values = {} if file is None else file.values()
        from_file = {key: text for key, text in values.items() if key not in _OWN_KEYS}
        self.values = {**from_file, **assigned}

    def place(self, key: str) -> str:
        """Where the value comes from: the flag, or file and line."""
        return "--set" if self._file is None or key in self._assigned else self._file.place(key)

    def pop_listeners(self, are_overridden: bool) -> _Listeners:
        """Returns the addresses of Kafka's two lists of listeners, without controller listeners."""
        controllers = set(parts_of(self.values.get("controller.listener.names", "")))
        warnings: list[str] = []
        named = self._pop_named("listeners")
        for name, address in named:
            if name in controllers:
                reason = "controller.listener.names names it, and one broker needs no quorum"
                warnings.append(f"listener {name}://{address} is left out: {reason}")
        kept = [(name, address) for name, address in named if name not in controllers]
        if named and not kept and not are_overridden:
            raise self._bad("listeners", "no client could connect: controller.listener.names has every listener")
        told = [(name, address) for name, address in self._pop_named("advertised.listeners") if name not in controllers]
        for key, listeners in (("listeners", kept), ("advertised.listeners", told)):
            for name, address in listeners:
                self._require_plaintext(key, name, address)
        return _Listeners([address for _, address in kept], _in_order(told, kept), warnings)

    def _pop_named(self, key: str) -> list[tuple[str, str]]:
        """Returns the name and the address of each listener in a list such as `PLAINTEXT://host:port`."""
        named = []
        for listener in parts_of(self.values.pop(key, "")):
            name, separator, address = listener.partition("://")
            if not separator:
                raise self._bad(key, f"{key} cannot be {listener!r}: write PLAINTEXT://HOST:PORT")
            named.append((name, address))
        return named

    def _require_plaintext(self, key: str, name: str, address: str) -> None:
        pairs = (pair.partition(":") for pair in parts_of(self.values.get(PROTOCOL_MAP, "")))
        protocols = {listener.strip(): protocol.strip() for listener, _, protocol in pairs}
        protocol = protocols.get(name, name)
        if protocol != "PLAINTEXT":
            text = f"{name}://{address}"
            raise self._bad(key, f"{key} cannot be {text!r}: write PLAINTEXT://HOST:PORT; there is no TLS or SASL yet")

    def pop_directory(self) -> str | None:
        """Returns the directory from Kafka's names for it."""
        found: dict[str, str] = {}
        for key in ("log.dirs", "log.dir"):
            found.update(dict.fromkeys(parts_of(self.values.pop(key, "")), key))
        if len(found) > 1:
            key = next(iter(found.values()))
            names = ", ".join(sorted(found))
            raise self._bad(key, f"{key}: there is one directory for logs, not {len(found)}: {names}")
        return next(iter(found), None)

    def check(self) -> dict[str, str]:
        """Returns the reason for each config that has no effect. Raises BadSettings for an unknown or invalid one."""
        try:
            return BrokerConfigs(self.values).ignored
        except InvalidConfig as error:
            key = self._culprit()
            flag = self._nearest_flag(key) if isinstance(error, UnknownConfig) else None
            raise self._bad(key, f"there is no {key!r}. Did you mean {flag}?" if flag else str(error)) from None

    def _nearest_flag(self, key: str | None) -> str | None:
        """The flag's name that a misspelled key of the file is nearest to; None if a config is nearer."""
        from difflib import get_close_matches  # imported late: only misspelled names need it

        if key is None or key in self._assigned:
            return None
        near = get_close_matches(key, [*_OWN_KEYS, *BROKER_KEYS], 1)
        return near[0] if near and near[0] in _OWN_KEYS else None

    def _culprit(self) -> str | None:
        """The first key that is invalid by itself; None if two keys conflict."""
        for key, text in self.values.items():
            try:
                BrokerConfigs({key: text})
            except InvalidConfig:
                return key
        return None

    def _bad(self, key: str | None, message: str) -> BadSettings:
        if key is None or key in self._assigned or self._file is None:
            return BadSettings(message)
        return BadSettings(f"{self._file.place(key)}: {message}")


def _in_order(told: list[tuple[str, str]], listeners: list[tuple[str, str]]) -> list[str]:
    """Returns the advertised addresses in the order of the listeners: by name, if names are unique."""
    names = [name for name, _ in listeners]
    by_name = dict(told)
    if len(by_name) == len(told) and by_name.keys() == set(names):
        return [by_name[name] for name in names]
    return [address for _, address in told]


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


def parse_address(text: str, default_port: int = PORT) -> Endpoint:
    """Parses HOST:PORT, [IPv6]:PORT, HOST, :PORT or PORT. Raises BadSettings."""
    try:
        return Endpoint(*parse(text, default_port))
    except BadAddress as error:
        raise BadSettings(str(error)) from None


def _http(address: str | None, token_file: str | None) -> HttpSettings | None:
    if address in _OFF:
        return None
    token = None
    if token_file is not None:
        from tailrace.util.tokens import BadToken, read_token  # imported late: most starts have no token

        try:
            token = read_token(token_file)
        except BadToken as error:
            raise BadSettings(str(error)) from None
    return HttpSettings(parse_address(address or HTTP, HTTP_PORT), address is None, token)


def _require_loopback(addresses: Sequence[Endpoint], risk: str, what: str, authentication: str | None = None) -> None:
    for address in addresses:
        if not is_loopback(address.host):
            raise NotSafe(
                f"refusing to listen on {address.host} without authentication: anyone who reaches this port could "
                f"{risk}.\n"
                + (f"  With authentication:      tailrace serve {authentication} …\n" if authentication else "")
                + "  On a network you trust:   tailrace serve --insecure …\n"
                f"  Else make the address of the {what} 127.0.0.1:{address.port}: only this machine reaches that."
            )


def _advertised(listen: Endpoint, told: Endpoint | None) -> Endpoint | None:
    """The address sent to clients: None for the one that they have connected to."""
    if told is not None:
        return told if told.port or not listen.port else Endpoint(told.host, listen.port)
    if not listen.port or is_wildcard(listen.host):
        return None
    return Endpoint(listen.host, listen.port)  # also for a host name, which clients may need
