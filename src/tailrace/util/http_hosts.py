"""Which `Host` an HTTP request may name: the protection against DNS rebinding.

A web page can give a name of its own the address of this machine, and then send requests here that the browser takes
for the page's own. The name stays in `Host`, so a name that is not known is refused. An address cannot be taken over
like that: the one that the client has connected to is allowed.
"""

from collections.abc import Iterable

from tailrace.util.host_port import HERE, ip_address


class AllowedHosts:
    def __init__(self, bound: str, further: Iterable[str] = ()) -> None:
        """`bound` is the host that the port is bound to, as it was given."""
        self._names = frozenset(name.lower().strip("[]") for name in (*HERE, bound, *further))

    def allows(self, header: str | None, local: str) -> bool:
        """`header` is the request's `Host`, with or without a port; `local` is the address that the client has
        connected to.
        """
        if header is None:
            return False
        name = host_in(header)
        if name in self._names:
            return True
        address = ip_address(name)
        return address is not None and address == ip_address(local)


def host_in(header: str) -> str:
    """Returns the host of `Host`, without its port and in lower case."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def refusal(header: str | None) -> str:
    """Returns what to tell a client whose `Host` is refused."""
    if header is None:
        return "the request has no Host"
    return f"Host {host_in(header)[:100]!r} is not known here; the config tailrace.http.hosts can name it"
