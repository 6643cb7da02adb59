"""`tailrace quota`, run as a user runs it, against a broker."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., tuple[str, str]]
EVERY_ENTITY = [
    (["--user", "alice"], {"user": "alice"}),
    (["--user", "alice", "--client-id", "importer"], {"user": "alice", "client-id": "importer"}),
    (["--user", "alice", "--client-defaults"], {"user": "alice", "client-id": None}),
    (["--client-defaults"], {"client-id": None}),
]


@pytest.fixture
def quotas(run: Run) -> Any:
    """Reads all of them; removes them in the end."""

    def found() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(run("quota", "show", "--json")[0])
        return rows

    yield found
    flags = {"user": "--user", "client-id": "--client-id", "ip": "--ip"}
    defaults = {"user": "--user-defaults", "client-id": "--client-defaults", "ip": "--ip-defaults"}
    for row in found():
        named = [
            word
            for kind, name in row["entity"].items()
            for word in ((flags[kind], name) if name else (defaults[kind],))
        ]
        run("quota", "set", *named, *(word for key in row["quotas"] for word in ("--unset", key)))


@pytest.mark.parametrize(("flags", "entity"), EVERY_ENTITY)
def test_quotas_of_every_entity_are_set_and_removed(
    run: Run, quotas: Any, flags: list[str], entity: dict[str, str | None]
) -> None:
    settings = {
        "producer_byte_rate": 1e6, "consumer_byte_rate": 2e6, "request_percentage": 12.5, "controller_mutation_rate": 5,
    }  # fmt: skip
    run("quota", "set", *flags, *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")))
    (row,) = quotas()
    assert (row["entity"], row["quotas"]) == (entity, settings)
    said = run("quota", "set", *flags, "--unset", "request_percentage")[0]
    assert "request_percentage: 12.5 → none" in said
    assert "request_percentage" not in quotas()[0]["quotas"]


@pytest.mark.parametrize(("flags", "name"), [(["--ip", "10.0.0.7"], "10.0.0.7"), (["--ip-defaults"], None)])
def test_addresses_have_quotas(run: Run, quotas: Any, flags: list[str], name: str | None) -> None:
    run("quota", "set", *flags, "--set", "connection_creation_rate=50")
    assert quotas() == [{"entity": {"ip": name}, "quotas": {"connection_creation_rate": 50}}]


def test_values_may_have_units_and_a_dry_run_changes_nothing(run: Run, quotas: Any) -> None:
    change = ("quota", "set", "--client-id", "importer", "--set", "producer_byte_rate=1.5MB")
    assert run(*change, "--dry-run")[0] == "would change client-id importer\n  producer_byte_rate: none → 1500000\n"
    assert quotas() == []
    assert json.loads(run(*change, "--json")[0]) == {
        "changed": "client-id importer",
        "dry_run": False,
        "changes": [{"name": "producer_byte_rate", "before": None, "after": "1500000"}],
    }
    assert "1500000 (1.5 MB)" in run("quota", "show")[0]


def test_the_list_is_narrowed_by_a_name(run: Run, quotas: Any) -> None:
    for flags in (["--user", "alice"], ["--user", "alice", "--client-id", "importer"], ["--client-id", "importer"]):
        run("quota", "set", *flags, "--set", "request_percentage=10")
    assert len(quotas()) == 3
    rows = json.loads(run("quota", "show", "--user", "alice", "--json")[0])
    assert [row["entity"] for row in rows] == [{"user": "alice"}, {"user": "alice", "client-id": "importer"}]
    assert "no quotas are set for user nobody" in run("quota", "show", "--user", "nobody")[1]


def test_changes_that_make_no_sense_are_refused(run: Run, quotas: Any) -> None:
    assert "nosuch" in run("quota", "set", "--user", "alice", "--set", "nosuch=1", code=5)[1]
    assert "its units are" in run("quota", "set", "--user", "alice", "--set", "producer_byte_rate=1h", code=2)[1]
    run("quota", "set", "--user", "alice", "--set", "connection_creation_rate=1", code=5)
    run("quota", "set", "--set", "producer_byte_rate=1", code=2)
    run("quota", "set", "--user", "alice", "--user-defaults", "--set", "producer_byte_rate=1", code=2)
    run("quota", "set", "--user", "alice", "--ip-defaults", "--set", "producer_byte_rate=1", code=2)
    assert "-X" not in run("quota", "show", "-X", "no.such=1", code=2)[1]
    assert quotas() == []
