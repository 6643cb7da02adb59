"""What Spark says of a query that failed: texts as it gave them to us, in `errors/`, but for paths and long lines."""

from pathlib import Path

import pytest

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import BadAnswer, BadOption, ConnectionLost, GaveUp, TopicNotFound
from tailrace.spark.pipelines.failures import Kind, kind_of, may_pass, reason_of
from tailrace.spark.source.losses import DataLost, Loss
from tailrace.spark.source.options import BadOptions


def error(name: str) -> RuntimeError:
    return RuntimeError((Path(__file__).parent / "errors" / f"{name}.txt").read_text())


def test_what_may_pass_does_so_also_where_the_plan_would_raise_for_corrupt_messages() -> None:
    failed = error("a-call-failed")
    assert "[TAILRACE_CORRUPT_MESSAGE]" in str(failed), "in the plan"
    assert may_pass(failed)
    assert reason_of(failed) == "OSError: the disk is full"
    assert kind_of(failed) is Kind.OTHER


def test_a_corrupt_message_does_not_pass_and_its_place_is_said() -> None:
    failed = error("a-message-is-corrupt")
    assert not may_pass(failed)
    assert reason_of(failed).endswith("orders partition 0 offset 1 is corrupt: it is not one JSON object")


def test_a_missing_topic_does_not_pass_and_is_said_as_the_client_says_it() -> None:
    failed = error("a-topic-is-missing")
    assert not may_pass(failed)
    assert reason_of(failed) == "there is no topic nosource; check its name, or create it first"
    assert kind_of(failed) is Kind.NOT_FOUND


def test_a_format_that_spark_does_not_have_is_named_and_does_not_pass() -> None:
    failed = error("a-format-is-missing")
    assert not may_pass(failed)
    assert reason_of(failed) == (
        "Spark has no format 'delta'. Check its name, or add the package that has it: "
        "--packages GROUP:NAME:VERSION, or in Python spark.jars.packages"
    )


def test_a_module_that_cannot_be_imported_does_not_pass() -> None:
    failed = RuntimeError(
        "Failed: Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'y'\n"
    )
    assert not may_pass(failed)
    assert reason_of(failed).startswith("No module named 'y'. Install it")


def test_records_that_are_gone_are_said_with_the_options_of_a_pipeline() -> None:
    lost = DataLost([Loss(TopicPartition("orders", 0), 3, 6, "deleted")])
    said = reason_of(RuntimeError(f"Failed: Traceback (most recent call last):\n  File x\n{lost}\n\tat org.apache"))
    assert "offsets 3 to 5 are missing (deleted)\nTo go on without them: --on-data-loss earliest" in said
    assert "option onDataLoss" not in said


def test_where_spark_says_nothing_the_cause_says_it() -> None:
    failed = RuntimeError("[STREAM_FAILED] Query [id = 1] terminated with exception:  SQLSTATE: XXKST")
    failed._cause = RuntimeError("java.io.EOFException")  # type: ignore[attr-defined]
    assert reason_of(failed) == "[STREAM_FAILED] Query [id = 1] terminated with exception: EOFException"


@pytest.mark.parametrize(
    "text", ["[TAILRACE_DATA_LOST] gone", "x.BadOptions: no", "SplitChanged: other rows", "[TAILRACE_CORRUPT_MESSAGE]"]
)
def test_what_cannot_pass_is_known(text: str) -> None:
    assert not may_pass(RuntimeError(f"Query failed\n{text}\n\tat org.apache"))
    assert may_pass(RuntimeError("connection refused"))


def test_a_reason_is_what_the_innermost_error_says() -> None:
    assert reason_of(RuntimeError("one\ntwo")) == "one"
    assert reason_of(RuntimeError()) == "RuntimeError"
    assert reason_of(RuntimeError("[X] it is so. SQLSTATE: 42K09; line 1")) == "[X] it is so."


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (ConnectionLost("host:1", "it is gone"), Kind.NOT_REACHABLE),
        (GaveUp("listing topics", 60, "refused"), Kind.NOT_REACHABLE),
        (TopicNotFound("orders"), Kind.NOT_FOUND),
        (BadOption("no"), Kind.OPTIONS),
        (BadOptions("no"), Kind.OPTIONS),
        (BadAnswer("host:1", "HTTP"), Kind.OTHER),
    ],
)
def test_errors_of_the_client_are_of_a_kind(failed: Exception, kind: Kind) -> None:
    assert kind_of(failed) is kind
