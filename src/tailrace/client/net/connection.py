"""A connection to one broker: ApiVersions, authentication, then requests and responses.

Requests may be pipelined; responses come in the same order, and each is checked against its request. Any error but a
broker's own error codes closes the connection.
"""

import struct
import time
from collections import deque
from typing import Any, Generic, TypeVar

from tailrace import __version__
from tailrace.client.errors import AuthenticationFailed, NotOffered, describe
from tailrace.client.net.sasl import converse
from tailrace.client.net.stream import Stream
from tailrace.client.options import Address, ClientOptions, Sasl
from tailrace.protocol.errors import ErrorCode, Malformed
from tailrace.protocol.frame import decode_response, encode_request
from tailrace.protocol.message import specification_of, versions_of
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

T = TypeVar("T")

_START = struct.Struct(">ih")  # of an ApiVersions response in any version: correlation id, error code
_SESSION_PART = 0.8  # of the session lifetime that the broker granted


class Pending(Generic[T]):
    """A request that was sent, and is waiting for its response."""

    __slots__ = ("answer", "correlation_id", "is_wanted", "response", "version")

    def __init__(self, correlation_id: int, response: type[T], version: int) -> None:
        self.correlation_id = correlation_id
        self.response = response
        self.version = version
        self.answer: T | None = None
        self.is_wanted = True


class Connection:
    """A connection that is ready for requests once constructed. Raises ClientError if that fails by the deadline."""

    def __init__(self, options: ClientOptions, address: Address, deadline: float) -> None:
        self.address = address
        self.options = options
        self._stream = Stream(options, address, deadline)
        self._last_id = 0
        self._sent: deque[Pending[Any]] = deque()
        self._good_until = float("inf")
        try:
            self._offered = self._ask_versions(deadline)
            if options.sasl is not None:
                self._authenticate(options.sasl, deadline)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return self._stream.name

    @property
    def is_closed(self) -> bool:
        return self._stream.is_closed

    @property
    def is_busy(self) -> bool:
        """Whether responses are outstanding."""
        return bool(self._sent)

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request: it is open, and its session has not expired."""
        return time.monotonic() < self._good_until and not self._sent and self._stream.is_silent()

    @property
    def has_arrived(self) -> bool:
        """Whether a response, or the end of the stream, can be read."""
        return self._stream.has_arrived()

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()
        self._sent.clear()

    # Versions

    def version_for(self, request: type[Any], *, at_least: int = 0, at_most: int = 0x7FFF) -> int:
        """The latest version that both sides support, within these bounds."""
        ours = versions_of(request)
        key = specification_of(request).key
        offered = self._offered.get(-1 if key is None else key)
        least, most = max(ours.first, at_least), min(ours.last, at_most)
        if offered is None or max(least, offered[0]) > min(most, offered[1]):
            shown = "no version" if offered is None else f"versions {offered[0]} to {offered[1]}"
            raise NotOffered(self.name, request.__name__, f"one of {least} to {most}", shown)
        return min(most, offered[1])

    def highest(self, request: type[Any]) -> int:
        """The latest version that the broker offers, or -1."""
        return self._offered.get(specification_of(request).key or 0, (0, -1))[1]

    def _ask_versions(self, deadline: float) -> dict[int, tuple[int, int]]:
        version = versions_of(ApiVersionsRequest).last
        answer = self._versions_at(version, deadline)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = {api.api_key: api.max_version for api in answer.api_keys}
            version = min(version - 1, offered.get(specification_of(ApiVersionsRequest).key or 0, 0))
            answer = self._versions_at(version, deadline)
        if answer.error_code:
            raise self._stream.bad(f"ApiVersions: {describe(answer.error_code)}")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _versions_at(self, version: int, deadline: float) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="tailrace", client_software_version=__version__)
        self._last_id += 1
        self._stream.send(encode_request(request, version, self._last_id, self.options.client_id), deadline)
        frame = self._stream.receive_frame(deadline)
        try:
            _, code = _START.unpack_from(frame)
        except struct.error:
            raise self._stream.bad(f"an ApiVersions response of {len(frame)} bytes") from None
        # A broker that does not know the version responds in version 0.
        read_as = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
        return self._decode(Pending(self._last_id, ApiVersionsResponse, read_as), frame)

    # Authentication

    def _authenticate(self, sasl: Sasl, deadline: float) -> None:
        shook = self.ask(SaslHandshakeRequest(mechanism=sasl.mechanism), SaslHandshakeResponse, deadline, at_least=1)
        if shook.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            why = f"{sasl.mechanism}: this listener has no authentication, so security.protocol is PLAINTEXT or SSL"
            raise AuthenticationFailed(self.name, why)
        if shook.error_code:
            offered = f"; it offers {', '.join(shook.mechanisms)}" if shook.mechanisms else ""
            raise AuthenticationFailed(self.name, f"{sasl.mechanism}: {describe(shook.error_code)}{offered}")
        conversation = converse(sasl)
        try:
            say = next(conversation)
            while True:
                say = conversation.send(self._authentication_step(say, deadline))
        except StopIteration:
            pass
        except ValueError as error:
            raise AuthenticationFailed(self.name, f"{sasl.mechanism}: {error}") from None

    def _authentication_step(self, say: bytes, deadline: float) -> bytes:
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=say), SaslAuthenticateResponse, deadline)
        if answer.error_code:
            raise AuthenticationFailed(self.name, answer.error_message or describe(answer.error_code))
        if answer.session_lifetime_ms > 0:
            self._good_until = time.monotonic() + answer.session_lifetime_ms / 1000 * _SESSION_PART
        return answer.auth_bytes

    # Requests and responses

    def send(
        self, request: Any, response: type[T], deadline: float, *, at_least: int = 0, at_most: int = 0x7FFF
    ) -> Pending[T]:
        """Sends the request now; `receive` waits for the response."""
        version = self.version_for(type(request), at_least=at_least, at_most=at_most)
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        data = encode_request(request, version, self._last_id, self.options.client_id)
        self._stream.send(data, deadline)
        pending = Pending(self._last_id, response, version)
        self._sent.append(pending)
        return pending

    def receive(self, pending: Pending[T], deadline: float) -> T:
        while pending.answer is None:
            self._receive_next(deadline)
        return pending.answer

    def ask(self, request: Any, response: type[T], deadline: float, *, at_least: int = 0, at_most: int = 0x7FFF) -> T:
        return self.receive(self.send(request, response, deadline, at_least=at_least, at_most=at_most), deadline)

    def abandon(self) -> None:
        """Marks outstanding responses as unwanted; they are dropped when they arrive."""
        for pending in self._sent:
            pending.is_wanted = False

    def drain(self, deadline: float) -> None:
        """Waits until no response is outstanding."""
        while self._sent:
            self._receive_next(deadline)

    def _receive_next(self, deadline: float) -> None:
        if not self._sent:
            raise self._stream.lost("closed before the response came")
        frame = self._stream.receive_frame(deadline)
        pending = self._sent.popleft()
        answer = self._decode(pending, frame)
        if pending.is_wanted:
            pending.answer = answer

    def _decode(self, pending: Pending[T], frame: memoryview) -> T:
        try:
            correlation_id, answer = decode_response(pending.response, pending.version, frame)
        except Malformed as error:
            raise self._close_for(f"{error}") from None
        if correlation_id != pending.correlation_id:
            raise self._close_for(f"a response to request {correlation_id}, expected one to {pending.correlation_id}")
        return answer

    def _close_for(self, why: str) -> Exception:
        self.close()
        return self._stream.bad(why)
