"""What goes wrong with Spark's verbs is said in words, with the exit code that every verb has for it."""

from pathlib import Path

import pytest

from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.pipelines.errors import in_words
from tailrace.client.errors import BadAnswer, BadOption, ConnectionLost, TopicNotFound
from tailrace.spark.pipelines.failures import RunFailed
from tailrace.spark.pipelines.pipeline_file import pipelines_in

pytestmark = [pytest.mark.needs("arrow"), pytest.mark.needs("spark")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionLost("host:1", "it is gone"), ExitCode.NOT_REACHABLE),
        (TopicNotFound("orders"), ExitCode.NOT_FOUND),
        (BadOption("there is no property x"), ExitCode.USAGE),
        (BadAnswer("host:1", "HTTP"), ExitCode.FAILED),
    ],
)
def test_what_the_client_says_is_no_bug(error: Exception, code: ExitCode) -> None:
    with pytest.raises(Failure) as raised, in_words():
        raise error
    assert (str(raised.value), raised.value.code) == (str(error), code)
    with pytest.raises(Failure, match=r"^big: it ended$") as raised, in_words():
        raise RunFailed("big: it ended") from error
    assert raised.value.code == code


def test_what_is_wrong_in_a_pipeline_is_said_with_its_line(tmp_path: Path) -> None:
    lines = ("from tailrace.spark import Console, pipeline", '@pipeline(source="a", sink=Console())', "def big(frame):")
    path = tmp_path / "mine.py"
    path.write_text("\n".join((*lines, "    return frame.nothing", "")))
    (job,) = pipelines_in(path)
    with pytest.raises(Failure, match=r"mine\.py:4: AttributeError: .* has no attribute 'nothing'"), in_words():
        job(object())  # type: ignore[arg-type]


def test_what_nobody_foresaw_stays_what_it_is() -> None:
    with pytest.raises(KeyError), in_words():
        raise KeyError("x")
