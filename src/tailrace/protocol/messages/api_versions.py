"""ApiVersions (key 18): the requests that a broker supports, and their versions; every client's first request."""

from tailrace.protocol.fields import array, boolean, int16, int32, int64, string
from tailrace.protocol.message import message, structure


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = string(versions="3+", ignorable=True)
    client_software_version: str = string(versions="3+", ignorable=True)


@structure
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@structure
class SupportedFeatureKey:
    name: str = string(versions="3+")
    min_version: int = int16(versions="3+")
    max_version: int = int16(versions="3+")


@structure
class FinalizedFeatureKey:
    name: str = string(versions="3+")
    max_version_level: int = int16(versions="3+")
    min_version_level: int = int16(versions="3+")


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, versions="3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64(versions="3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, versions="3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean(versions="3+", tag=3, ignorable=True)
