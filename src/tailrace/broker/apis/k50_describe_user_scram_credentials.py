"""DescribeUserScramCredentials (key 50): the users with a SCRAM password, and its mechanisms.

Behaviour: there are none, as there is no authentication yet: a request for all gets an empty list, one for a user an
error that it has none.

Versions 0.
Not done: authentication.
"""

from collections import Counter
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.broker.core.errors import in_short
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker


def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, call: Call, broker: "Broker"
) -> DescribeUserScramCredentialsResponse:
    counts = Counter(user.name for user in request.users or ())
    results = []
    for name, count in counts.items():
        code = ErrorCode.DUPLICATE_RESOURCE if count > 1 else ErrorCode.RESOURCE_NOT_FOUND
        text = f"{name!r} appears {count} times in the request" if count > 1 else f"{name!r} has no SCRAM credentials"
        results.append(DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=in_short(text)))
    return DescribeUserScramCredentialsResponse(results=results)


API = Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, describe_user_scram_credentials, frame_bytes_max=1 << 20)
