"""SaslHandshake (key 17): the mechanism with which a client will authenticate.

Behaviour: listeners of clients have no authentication, and answer ILLEGAL_SASL_STATE, as a PLAINTEXT listener of Kafka
does. The private listener of the broker's child processes takes PLAIN (`server/net/private`).

Versions 0-1.
    1   the mechanism's messages follow in SaslAuthenticate; without that there is no authentication
Not done: authentication of clients.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def sasl_handshake(request: SaslHandshakeRequest, call: Call, broker: "Broker") -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api(ApiKey.SASL_HANDSHAKE, sasl_handshake, frame_bytes_max=4 << 10)
