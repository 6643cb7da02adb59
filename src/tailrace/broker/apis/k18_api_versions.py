"""ApiVersions (key 18): the supported APIs and their versions, and the features. The first request of a client.

Behaviour: an unknown version is answered in version 0, with UNSUPPORTED_VERSION and the same list, so that the client
can ask again. Features are always on: Kafka's clients use the second version of transactions where
`transaction.version` is 2; `group.version` 1 is that of consumer groups (KIP-848); `share.version` 1 that of share
groups (KIP-932), and 2 that of their dead-letter topics (KIP-1191).

Versions 0-4.
    3   features      4   features whose first version is 0
Not done: checks of a client's name and version.
"""

from typing import TYPE_CHECKING

from tailrace.broker.core.api import Api, Call
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import SPOKEN, ApiKey
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

FEATURES = {"group.version": 1, "share.version": 2, "transaction.version": 2}  # the highest version of each, from 0 on
FEATURES_EPOCH = 0  # they never change
FIRST_VERSION_0_FROM = 4  # older clients reject a feature that begins at version 0


def api_versions(request: ApiVersionsRequest, call: Call, broker: "Broker") -> ApiVersionsResponse:
    supported = FEATURES if call.version >= FIRST_VERSION_0_FROM else {}
    return ApiVersionsResponse(
        api_keys=advertised(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=0, max_version=highest) for name, highest in supported.items()
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=highest, min_version_level=highest)
            for name, highest in FEATURES.items()
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """Returns the response to an unknown version. To be encoded in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised())


def advertised() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=spoken.advertised_from, max_version=spoken.versions.last)
        for key, spoken in SPOKEN.items()
    ]


API = Api(ApiKey.API_VERSIONS, api_versions, frame_bytes_max=8 << 10)
