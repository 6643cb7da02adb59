"""Addresses as users write them: HOST:PORT, and whether a host is this machine alone. Pure, but for `ipaddress`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

HERE = ("localhost", "127.0.0.1", "::1")


class BadAddress(ValueError):
    """The text is no address. The message says what to write instead."""


def parse(text: str, default_port: int) -> tuple[str, int]:
    """Parses HOST:PORT, [IPv6]:PORT, HOST, :PORT or PORT. An empty host is all addresses. Raises BadAddress."""
    text = text.strip()
    if _is_number(text):
        host, port = "127.0.0.1", text
    elif text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = (rest.removeprefix(":") or str(default_port)) if host and bracket else ""
    elif text.count(":") > 1:
        raise BadAddress(f"{text!r} is not an address: an IPv6 address stands in brackets, as in [::1]:{default_port}")
    else:
        host, _, port = text.partition(":")
        port = port or str(default_port)
    if not _is_number(port) or int(port) > 65535:
        raise BadAddress(f"{text!r} is not an address: write HOST:PORT, as in 127.0.0.1:{default_port}")
    return host or "0.0.0.0", int(port)  # noqa: S104 - the user's choice; callers ask `is_loopback`


def shown(host: str, port: int) -> str:
    """Returns HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    return host in HERE or ((address := ip_address(host)) is not None and address.is_loopback)


def is_wildcard(host: str) -> bool:
    """Whether it stands for all addresses of the machine."""
    return host not in HERE and (address := ip_address(host)) is not None and address.is_unspecified


def ip_address(host: str) -> "IPv4Address | IPv6Address | None":
    """None for a host name."""
    from ipaddress import ip_address  # imported late: a broker on loopback does not need it

    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
