"""SaslAuthenticate (key 36): the messages of a SASL mechanism.

Behaviour: as SaslHandshake: ILLEGAL_SASL_STATE on the listeners of clients. On the private listener, PLAIN with user
`tailrace-internal` and the token that the broker gives to its child processes; a client with another password is
disconnected.

Versions 0-2.
    1   the lifetime of the session: 0, it does not end
Not done: authentication of clients.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def sasl_authenticate(request: SaslAuthenticateRequest, call: Call, broker: "Broker") -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener has no authentication: set security.protocol=PLAINTEXT",
    )


API = Api(ApiKey.SASL_AUTHENTICATE, sasl_authenticate, frame_bytes_max=4 << 10)
