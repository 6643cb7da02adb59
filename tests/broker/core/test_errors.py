"""What is said to clients: it fits into an answer, whatever names they made up."""

from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.broker.core.errors import Refused
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import alter_client_quotas as alter_quotas
from tailrace.protocol.messages import describe_client_quotas as describe_quotas
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest
from tailrace.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tailrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

LONG = "x" * 32_767  # the longest that a request can say


def test_a_message_that_is_long_is_cut() -> None:
    assert Refused(ErrorCode.INVALID_REQUEST, "no").message == "no"
    error = Refused(ErrorCode.INVALID_REQUEST, LONG)
    assert len(error.message) < 1100
    assert str(error) == error.message


def _quota(kind: str, name: str, *changes: alter_quotas.OpData) -> alter_quotas.AlterClientQuotasRequest:
    entity = [alter_quotas.EntityData(entity_type=kind, entity_name=name)]
    return alter_quotas.AlterClientQuotasRequest(entries=[alter_quotas.EntryData(entity=entity, ops=list(changes))])


def _config(kind: int, whose: str, name: str, value: str | None, times: int = 1) -> AlterConfigsResource:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    return AlterConfigsResource(resource_type=kind, resource_name=whose, configs=[change] * times)


REQUESTS = {
    "a user": (DescribeUserScramCredentialsRequest(users=[UserName(name=LONG)]), 0),
    "a group": (DescribeGroupsRequest(groups=[LONG]), 6),
    "a kind of entity": (_quota(LONG, "x"), 1),
    "an address": (_quota("ip", LONG), 1),
    "a quota": (_quota("user", "x", alter_quotas.OpData(key=LONG, value=1.0, remove=False)), 1),
    "a filter": (
        describe_quotas.DescribeClientQuotasRequest(
            components=[describe_quotas.ComponentData(entity_type=LONG, match_type=0, match="x")], strict=False
        ),
        1,
    ),
    "a config": (IncrementalAlterConfigsRequest(resources=[_config(2, "orders", LONG, None)]), 1),
    "a resource": (IncrementalAlterConfigsRequest(resources=[_config(2, LONG, "x", "1")] * 2), 1),
    "many configs": (IncrementalAlterConfigsRequest(resources=[_config(4, "", "broker.id", "1", 3_000)]), 1),
    "a logger": (IncrementalAlterConfigsRequest(resources=[_config(8, "1", LONG, "1", 2)]), 1),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_what_is_refused_is_answered_however_long_its_name_is(tmp_path: Path, what: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.ask(*REQUESTS[what])
