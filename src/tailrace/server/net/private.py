"""Connections of the private listener, which serves child processes of the broker: SASL/PLAIN with the broker's token.

Before a client has authenticated, it may send ApiVersions, SaslHandshake and SaslAuthenticate, in small frames: the
length and the key of any other request end the connection before the request is read. A client with a wrong token gets
the error, and is disconnected a moment later.
"""

import hmac
import socket
from typing import TYPE_CHECKING, Any

from tailrace.broker.core.api import Api, Call, Endpoint
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tailrace.server.net.connection import Connection

if TYPE_CHECKING:
    from tailrace.server.node import Node

USER = "tailrace-internal"
MECHANISM = "PLAIN"
FRAME_BYTES_MAX = 4 << 10  # before authentication
PATIENCE_S = 10.0  # for a client to authenticate
FAILED_S = 0.1  # from the response to a wrong password to the end of the connection, which slows down guessing
_OPEN_TO_ALL = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))


class PrivateConnection(Connection):
    def __init__(self, node: "Node", sock: socket.socket, endpoint: Endpoint, peer: str, token: str) -> None:
        super().__init__(node, sock, endpoint, peer)
        self._token = token
        self._has_shaken_hands = False
        self._is_authenticated = False
        self._frames.limit_by(_limit_of_strangers)
        self._end = node.loop.call_later(PATIENCE_S, self.close)

    def close(self) -> None:
        self._end.cancel()
        super().close()

    def _handle(self, api: Api, request: Any, call: Call) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return self._shake_hands(request, call.version)
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticate(request)
        return super()._handle(api, request, call)

    def _shake_hands(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        code = ErrorCode.NONE
        if self._is_authenticated:
            code = ErrorCode.ILLEGAL_SASL_STATE
        elif request.mechanism != MECHANISM:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        elif version == 0:  # what follows would not be in SaslAuthenticate
            code = ErrorCode.UNSUPPORTED_VERSION
        self._has_shaken_hands = code is ErrorCode.NONE
        return SaslHandshakeResponse(error_code=code, mechanisms=[MECHANISM])

    def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        if not self._has_shaken_hands or self._is_authenticated:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate is allowed once, after SaslHandshake with mechanism PLAIN",
            )
        self._has_shaken_hands = False
        self._end.cancel()
        if not is_valid(bytes(request.auth_bytes), self._token):
            self._frames.limit_by(_nothing)
            self._end = self.node.loop.call_later(FAILED_S, self.close)
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message="authentication failed: invalid user or password",
            )
        self._is_authenticated = True
        self._frames.limit_by(self.node.frame_bytes_max)
        return SaslAuthenticateResponse()


def is_valid(auth_bytes: bytes, token: str) -> bool:
    """Whether the message of SASL/PLAIN has the internal user and the token; takes as long for any password."""
    _, _, said = auth_bytes.partition(b"\0")
    return hmac.compare_digest(said, f"{USER}\0{token}".encode())


def _limit_of_strangers(api_key: int) -> int:
    return FRAME_BYTES_MAX if api_key in _OPEN_TO_ALL else 0


def _nothing(api_key: int) -> int:
    return 0
