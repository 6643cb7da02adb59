"""SaslAuthenticate (key 36): the steps of a SASL mechanism, in its own bytes."""

from tailrace.protocol.fields import byte_string, int16, int64, string
from tailrace.protocol.message import message


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = byte_string()


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    auth_bytes: bytes = byte_string()
    session_lifetime_ms: int = int64(versions="1+", ignorable=True)
