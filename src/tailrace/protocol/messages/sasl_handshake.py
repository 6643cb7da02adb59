"""SaslHandshake (key 17): the mechanism with which a client will authenticate. Never flexible."""

from tailrace.protocol.fields import array, int16, string
from tailrace.protocol.message import message


@message(key=17, versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = string()


@message(key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(string)
