from errno import ENOSPC
from typing import Any

import pytest
from brokers import LocalBroker, resolved
from logs import DATA, memory_files

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tailrace.testing.faulty_files import FaultyFiles

VERSIONS = [0, 1]
Named = list[tuple[str, str | None]]
Change = tuple[str, float | None]  # None takes it back
CLIENT: Named = [("client-id", "c")]
ADDRESS: Named = [("ip", "10.0.0.1")]


def entry(entity: Named, *changes: Change) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes],
    )


def alter(broker: LocalBroker, *entries: EntryData, version: int = 1, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    results = broker.ask(request, version).entries
    assert [result.entity for result in results] == [one.entity for one in entries]
    return [int(result.error_code) for result in results]


def quotas(broker: LocalBroker) -> dict[Any, dict[str, float]]:
    return broker.broker.metadata.quotas.values


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("entity", "key"),
    [
        ([("user", "u")], "producer_byte_rate"),
        ([("user", None)], "consumer_byte_rate"),
        ([("client-id", "c")], "request_percentage"),
        ([("user", None), ("client-id", "c")], "controller_mutation_rate"),
        ([("client-id", None), ("user", "u")], "producer_byte_rate"),
        ([("ip", "10.0.0.1")], "connection_creation_rate"),
        ([("ip", None)], "connection_creation_rate"),
    ],
)
def test_quotas_are_set_changed_and_taken_back(version: int, entity: Named, key: str) -> None:
    with LocalBroker(DATA, files=memory_files()) as broker:
        assert alter(broker, entry(entity, (key, 5.0)), version=version) == [0]
        assert quotas(broker) == {tuple(sorted(entity)): {key: 5.0}}
        assert alter(broker, entry(entity, (key, 7.0)), version=version) == [0]
        assert quotas(broker) == {tuple(sorted(entity)): {key: 7.0}}
        assert alter(broker, entry(entity, (key, None)), version=version) == [0]
        assert quotas(broker) == {}


@pytest.mark.parametrize(
    ("entity", "change"),
    [
        ([], ("producer_byte_rate", 5.0)),
        ([("nobody", "x")], ("producer_byte_rate", 5.0)),
        ([("user", "")], ("producer_byte_rate", 5.0)),
        ([("user", "a"), ("user", "b")], ("producer_byte_rate", 5.0)),
        ([("ip", "10.0.0.1"), ("user", "u")], ("connection_creation_rate", 5.0)),
        ([("ip", "localhost")], ("connection_creation_rate", 5.0)),
        ([("ip", "10.0.0.256")], ("connection_creation_rate", 5.0)),
        (ADDRESS, ("producer_byte_rate", 5.0)),
        (CLIENT, ("connection_creation_rate", 5.0)),
        (CLIENT, ("nonsense", 5.0)),
        (CLIENT, ("producer_byte_rate", 0.0)),
        (CLIENT, ("producer_byte_rate", -1.0)),
        (CLIENT, ("producer_byte_rate", 1.5)),
        (CLIENT, ("producer_byte_rate", 1e300)),
        (CLIENT, ("consumer_byte_rate", float("nan"))),
        (CLIENT, ("request_percentage", float("inf"))),
        (ADDRESS, ("connection_creation_rate", 2.0**31)),
    ],
)
def test_what_is_no_quota_is_refused_with_all_that_came_with_it(entity: Named, change: Change) -> None:
    with LocalBroker(DATA, files=memory_files()) as broker:
        refused = entry(entity, ("request_percentage", 50.0), change)
        assert alter(broker, refused, entry([("user", "v")], ("producer_byte_rate", 9.0))) == [
            ErrorCode.INVALID_REQUEST,
            0,
        ]
        assert quotas(broker) == {(("user", "v"),): {"producer_byte_rate": 9.0}}


def test_what_is_named_twice_is_refused() -> None:
    with LocalBroker(DATA, files=memory_files()) as broker:
        twice = entry(CLIENT, ("producer_byte_rate", 5.0), ("producer_byte_rate", None))
        assert alter(broker, twice) == [ErrorCode.INVALID_REQUEST]
        spelled = [entry([("ip", name)], ("connection_creation_rate", 5.0)) for name in ("::1", "0:0:0:0:0:0:0:1")]
        assert alter(broker, *spelled) == [0, ErrorCode.INVALID_REQUEST]


def test_what_is_not_there_can_be_taken_back_and_writes_nothing() -> None:
    with LocalBroker(DATA, files=memory_files()) as broker:
        alter(broker, entry(CLIENT, ("producer_byte_rate", 5.0)))
        before = broker.broker.metadata_log.log.end_offset
        assert alter(broker, entry(CLIENT, ("nonsense", None), ("producer_byte_rate", 5.0))) == [0]
        assert alter(broker, entry(ADDRESS)) == [0]
        assert broker.broker.metadata_log.log.end_offset == before


@pytest.mark.parametrize("version", VERSIONS)
def test_validate_only_changes_nothing(version: int) -> None:
    with LocalBroker(DATA, files=memory_files()) as broker:
        good, bad = entry(CLIENT, ("producer_byte_rate", 5.0)), entry(ADDRESS, ("nonsense", 5.0))
        assert alter(broker, good, bad, version=version, validate_only=True) == [0, ErrorCode.INVALID_REQUEST]
        assert quotas(broker) == {}


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_quotas_survive(how: str) -> None:
    with LocalBroker(DATA, files=memory_files()) as broker:
        both = entry([("user", None), ("client-id", "é")], ("request_percentage", 12.5), ("producer_byte_rate", 3.0))
        assert alter(broker, both, entry(ADDRESS, ("connection_creation_rate", 5.0))) == [0, 0]
        before = {entity: dict(values) for entity, values in quotas(broker).items()}
        getattr(broker, how)()
        assert quotas(broker) == before != {}


def test_it_is_answered_when_it_is_on_disk() -> None:
    with LocalBroker(DATA, files=memory_files()) as broker:
        broker.hold_jobs = True
        request = AlterClientQuotasRequest(entries=[entry(CLIENT, ("producer_byte_rate", 5.0))])
        answers = resolved(broker.begin(request, 1))
        assert not answers
        broker.run_jobs()
        assert answers[0].entries[0].error_code == 0


def test_a_disk_that_is_full_refuses_it() -> None:
    files = FaultyFiles(memory_files())
    with LocalBroker(DATA, files=files) as broker:
        files.fail("write_at", ENOSPC)
        assert alter(broker, entry(CLIENT, ("producer_byte_rate", 5.0))) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert quotas(broker) == {}
