"""What the decorators make of a class: constructors by name, defaults of one's own, slots, equality."""

import subprocess
import sys
from typing import Any

import pytest

from tailrace.protocol.message import Versions, is_flexible, parse_versions, versions_of
from tailrace.protocol.messages import REQUESTS, RESPONSES, SPOKEN
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse


def test_every_argument_of_a_constructor_is_optional_and_named() -> None:
    assert MetadataRequest().allow_auto_topic_creation is True
    assert MetadataRequest(topics=None).topics is None
    with pytest.raises(TypeError):
        MetadataRequest([])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MetadataRequest(topic=[])  # type: ignore[call-arg]


def test_each_message_has_lists_of_its_own() -> None:
    first, second = MetadataRequest(), MetadataRequest()
    assert first.topics is not None
    first.topics.append(MetadataRequestTopic(name="t"))
    assert second.topics == []


def test_a_message_takes_no_other_attributes() -> None:
    request: Any = MetadataRequest()
    with pytest.raises(AttributeError):
        request.topic = []


def test_messages_are_equal_where_all_fields_are() -> None:
    assert MetadataRequestTopic(name="a") == MetadataRequestTopic(name="a")
    assert MetadataRequestTopic(name="a") != MetadataRequestTopic(name="b")
    assert MetadataRequest() != ProduceResponse()
    with pytest.raises(TypeError):
        hash(MetadataRequest())


def test_a_message_is_shown_without_what_is_at_its_default() -> None:
    shown = repr(MetadataRequest(topics=[MetadataRequestTopic(name="a")]))
    assert shown == "MetadataRequest(topics=[MetadataRequestTopic(name='a')])"
    assert repr(PartitionProduceResponse()) == "PartitionProduceResponse()"


def test_ranges_of_versions_are_read() -> None:
    assert repr(parse_versions("3-12")) == "3-12"
    assert 7 in parse_versions("7")
    assert 8 not in parse_versions("7")
    assert 0x7FFF in parse_versions("4+")
    assert 3 not in parse_versions("4+")
    assert 0 not in parse_versions(None)


@pytest.mark.parametrize("key", REQUESTS)
def test_request_and_response_of_an_api_have_the_same_versions(key: int) -> None:
    def described(message: type[Any]) -> tuple[int, int, list[bool]]:
        versions: Versions = versions_of(message)
        each = range(versions.first, versions.last + 1)
        return versions.first, versions.last, [is_flexible(message, version) for version in each]

    assert RESPONSES.keys() == REQUESTS.keys()
    assert described(REQUESTS[key]) == described(RESPONSES[key])
    assert REQUESTS[key].__specification__.key == RESPONSES[key].__specification__.key == key


@pytest.mark.parametrize("key", SPOKEN)
def test_the_table_says_what_the_classes_declare(key: int) -> None:
    declared = REQUESTS[key].__specification__
    assert repr(SPOKEN[key].versions) == repr(declared.versions)
    assert repr(SPOKEN[key].flexible) == repr(declared.flexible)
    assert SPOKEN[key].advertised_from <= declared.versions.first


def test_messages_are_imported_when_they_are_asked_for() -> None:
    script = (
        "import sys, tailrace.protocol.messages as messages;"
        "assert 'tailrace.protocol.messages.heartbeat' not in sys.modules;"
        "assert messages.REQUESTS[12].__name__ == 'HeartbeatRequest';"
        "assert len(messages.REQUESTS) == len(messages.SPOKEN) > 12;"
        "assert 99 not in messages.REQUESTS"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
