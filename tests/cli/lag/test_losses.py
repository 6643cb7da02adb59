"""`tailrace lag --losses`, run as a user runs it."""

import json
from collections.abc import Callable

from cli.lag.conftest import OURS

Run = Callable[..., tuple[str, str]]


pytestmark = OURS  # the only one with a ledger


def test_deleted_messages_that_a_group_had_not_read_are_listed(
    run: Run, ten: str, unused: str, commit: Callable[..., None], delete_before: Callable[[str, int], None]
) -> None:
    commit(unused, ten, 3)
    assert json.loads(run("lag", unused, "--losses", "--json")[0]) == {"losses": []}
    delete_before(ten, 5)
    delete_before(ten, 7)
    (loss,) = json.loads(run("lag", unused, "--losses", "--json")[0])["losses"]
    expected = {"group": unused, "topic": ten, "partition": 0, "first": 3, "last": 6, "records": 4, "exact": True}
    assert expected.items() <= loss.items()
    assert loss["reason"] == "delete_records"
    assert loss["at"].endswith("Z")
    said, _ = run("lag", unused, "--losses", "--topic", ten)
    assert f"{ten}-0 @3" in said
    assert "4 messages lost" in said
    assert run("lag", "--losses", "--topic", "another")[0] == "No lost messages are recorded.\n"
    assert json.loads(run("lag", unused, "--losses", "--since", "now", "--json")[0]) == {"losses": []}


def test_a_group_that_is_moved_forward_loses_what_lies_between_also_right_after_somebody_has_read(
    run: Run, unused: str, ten: str
) -> None:
    run("tail", ten, "--group", unused, "--from", "earliest", "-n", "4")
    run("group", "reset", unused, "--to", "latest", "--yes")
    (loss,) = json.loads(run("lag", unused, "--losses", "--json")[0])["losses"]
    expected = {"first": 4, "last": 9, "exact": False, "reason": "reset_forward", "client_id": "tailrace-admin"}
    assert expected.items() <= loss.items()


def test_losses_of_an_unknown_group_are_not_found(run: Run, unused: str, ten: str) -> None:
    assert f"there is no group {unused!r}" in run("lag", unused, "--losses", code=4)[1]
    assert "--since" in run("lag", "--losses", "--since", "tuesdayish", code=2)[1]
    run("lag", "--losses", "-b", "127.0.0.1:1", code=3)
    assert "unknown property" in run("lag", "--losses", "-X", "no.such=1", code=2)[1]
