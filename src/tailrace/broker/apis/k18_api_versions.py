"""ApiVersions (key 18): the supported APIs and their versions. The first request of a client.

Behaviour: an unknown version is answered in version 0, with UNSUPPORTED_VERSION and the same list, so that the client
can ask again.

Versions 0-4.
    3   features: `group.version`, of consumer groups      4   also features that may be off, which 3 leaves out
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


OPTIONAL_FEATURES_FROM = 4  # clients of version 3 refuse features whose lowest version is 0
FEATURES = {"group.version": (0, 1)}  # the lowest and the highest version, which is the one in use


def api_versions(request: ApiVersionsRequest, call: Call, broker: "Broker") -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=advertised(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in FEATURES.items()
            if lowest > 0 or call.version >= OPTIONAL_FEATURES_FROM
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=highest, min_version_level=highest)
            for name, (_, highest) in FEATURES.items()
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
