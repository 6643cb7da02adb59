"""Bootstrap addresses: whether each of them refuses connections, so that waiting for a broker makes no sense."""

import errno
import re
import socket

_PORT = 9092
_CONNECT_SECONDS = 0.5
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[([^]]+)\]|([^:\[\]/]+))(?::(\d{1,5}))?")
_NO_SUCH_FAMILY = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH)  # localhost, without IPv6


def all_refuse(bootstrap: str) -> bool:
    """Whether every address of a list like `host:9092,other:9092` refuses connections. False where one accepts, where
    a name is not resolved, and where a connection attempt times out: there, a broker may answer later.
    """
    given = [text.strip() for text in bootstrap.split(",") if text.strip()]
    return bool(given) and all(map(_refuses, given))


def _refuses(address: str) -> bool:
    matched = _ADDRESS.fullmatch(address)
    if matched is None:
        return False
    try:
        place = (matched[1] or matched[2], int(matched[3] or _PORT))
        socket.create_connection(place, _CONNECT_SECONDS, all_errors=True).close()
    except ExceptionGroup as group:  # one for each address that the name has
        codes = {error.errno for error in group.exceptions if isinstance(error, OSError)}
        return errno.ECONNREFUSED in codes and codes <= {errno.ECONNREFUSED, *_NO_SUCH_FAMILY}
    except (OSError, OverflowError):
        return False
    return False
