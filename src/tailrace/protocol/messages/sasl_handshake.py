"""SaslHandshake (key 17): which mechanism a client is going to prove itself with. Never flexible.

Our client asks this of other brokers; ours does not answer it yet, and so it is not among `REQUESTS`.
"""

from tailrace.protocol.fields import array, int16, string
from tailrace.protocol.message import message


@message(key=17, versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = string()


@message(key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(string)
