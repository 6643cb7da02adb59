from typing import Any

import pytest
from brokers import LocalBroker
from logs import DATA, memory_files

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
VERSIONS = [0, 1]
ENTITIES: list[tuple[tuple[str, str | None], ...]] = [
    (("user", "u"),),
    (("user", None),),
    (("client-id", "c"),),
    (("client-id", None),),
    (("client-id", "c"), ("user", "u")),
    (("client-id", None), ("user", "u")),
    (("ip", "::1"),),
    (("ip", None),),
]
Component = tuple[str, int, str | None]


def describe(broker: LocalBroker, *components: Component, strict: bool = False, version: int = 1) -> Any:
    wanted = [ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components]
    return broker.ask(DescribeClientQuotasRequest(components=wanted, strict=strict), version)


@pytest.fixture
def broker() -> LocalBroker:
    broker = LocalBroker(DATA, files=memory_files())
    for number, entity in enumerate(ENTITIES):
        broker.broker.metadata.quotas.set(entity, "some_rate", 1.5 + number)
    return broker


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, range(len(ENTITIES))),
        ([], True, []),
        ([("user", EXACT, "u")], False, [0, 4, 5]),
        ([("user", EXACT, "u")], True, [0]),
        ([("user", DEFAULT, None)], False, [1]),
        ([("user", SPECIFIED, None)], True, [0, 1]),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "c")], False, [4]),
        ([("user", SPECIFIED, None), ("client-id", SPECIFIED, None)], True, [4, 5]),
        ([("user", EXACT, "nobody")], False, []),
        ([("ip", SPECIFIED, None)], False, [6, 7]),
        ([("ip", EXACT, "0:0:0:0:0:0:0:1")], False, [6]),
        ([("ip", EXACT, "no address")], False, []),
    ],
)
def test_a_filter_finds_those_that_have_all_it_names(
    broker: LocalBroker, version: int, components: list[Component], strict: bool, found: list[int]
) -> None:
    answer = describe(broker, *components, strict=strict, version=version)
    assert answer.error_code == 0
    entries = {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): [
            (value.key, value.value) for value in entry.values
        ]
        for entry in answer.entries
    }
    assert entries == {ENTITIES[number]: [("some_rate", 1.5 + number)] for number in found}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
        ([("nobody", SPECIFIED, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", SPECIFIED, None), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_filter_is_refused(broker: LocalBroker, components: list[Component], code: ErrorCode) -> None:
    answer = describe(broker, *components)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message
