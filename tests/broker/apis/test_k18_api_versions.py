"""ApiVersions: what is advertised is what is served."""

from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.broker.apis.k18_api_versions import unsupported_version
from tailrace.broker.apis.registry import APIS
from tailrace.protocol import codec
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.message import versions_of
from tailrace.protocol.messages import REQUESTS, ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


def test_every_api_is_listed_in_every_version(tmp_path: Path) -> None:
    """Pitfalls 2 and 3: a client that cannot read a feature whose first version is 0 is not shown one."""
    with LocalBroker(tmp_path) as broker:
        for version in range(5):
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            response = broker.ask(request, version)
            assert response.error_code == 0
            assert response.throttle_time_ms == 0
            listed = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
            assert listed.keys() == APIS.keys()
            for key, (lowest, highest) in listed.items():
                served = versions_of(REQUESTS[key])
                assert highest == served.last
                assert lowest == (0 if key == ApiKey.PRODUCE else served.first)
            supported = [(one.name, one.min_version, one.max_version) for one in response.supported_features]
            features = [("group.version", 0, 1), ("share.version", 0, 2), ("transaction.version", 0, 2)]
            assert supported == (features if version >= 4 else [])


@pytest.mark.parametrize("version", [3, 4])
def test_clients_find_which_features_are_on(tmp_path: Path, version: int) -> None:
    """They use the second version of transactions only where the feature is on."""
    with LocalBroker(tmp_path) as broker:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        response = broker.ask(request, version)
        assert response.finalized_features_epoch == 0
        levels = {one.name: (one.min_version_level, one.max_version_level) for one in response.finalized_features}
        assert levels == {"group.version": (1, 1), "share.version": (2, 2), "transaction.version": (2, 2)}


def test_a_version_that_is_too_new_is_answered_in_version_0_with_the_list(tmp_path: Path) -> None:
    """Pitfall 1."""
    response = codec.decode(ApiVersionsResponse, 0, codec.encode(unsupported_version(), 0))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ApiKey.API_VERSIONS in {one.api_key for one in response.api_keys}
