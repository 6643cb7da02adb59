"""Why a query failed, and whether a restart can help. Spark reports errors as text only, with the traces of two
languages in it, followed by the plan of the query and every string in it.
"""

import re
from enum import Enum, auto

from tailrace.client.errors import ClientError
from tailrace.spark.pipelines import decoders
from tailrace.spark.source import losses

# What another try cannot change. Of a Python process of Spark's, only the names of errors arrive.
_LASTING = (
    losses.MARK,
    decoders.MARK,
    "BadOption",  # and BadOptions
    "AnalysisException",
    "ParseException",
    "TopicNotFound",  # the client has asked for it for a while
    "SplitChanged",  # the rows of a batch that is written again are others: `exactly_once.py`
    "AlreadyFurther",
)
_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(.*?)(?=\n\s*at |\n\n|\Z)", re.DOTALL)
_ABOUT_THE_QUERY = "=== Streaming Query ==="
_STATE = re.compile(r"\s*SQLSTATE: \w{5}\b.*", re.DOTALL)  # ends what an error of Spark's says
_OURS = re.compile(r"^tailrace\.[\w.]+\.(\w+): ")


class RunFailed(Exception):
    """A pipeline that was given up: its name, why, and what is to be done."""


class Kind(Enum):
    """What has to change, before another try."""

    NOT_REACHABLE = auto()  # the broker
    NOT_FOUND = auto()  # a topic
    OPTIONS = auto()
    OTHER = auto()


_KINDS = {
    "ConnectionLost": Kind.NOT_REACHABLE,
    "GaveUp": Kind.NOT_REACHABLE,
    "TopicNotFound": Kind.NOT_FOUND,
    "BadOption": Kind.OPTIONS,
    "BadOptions": Kind.OPTIONS,
}


def may_pass(error: BaseException) -> bool:
    text = f"{type(error).__name__}: {_said(error)}"
    return not any(mark in text for mark in _LASTING)


def reason_of(error: BaseException) -> str:
    """What the innermost error says, without traces. Of one of ours, not what it is called."""
    return _OURS.sub("", _reason(error))


def kind_of(error: BaseException) -> Kind:
    """By the name of the error, or of the innermost one in its text."""
    found = _OURS.match(_reason(error))
    return _KINDS.get(found[1] if found else type(error).__name__, Kind.OTHER)


def is_of_client(error: BaseException) -> bool:
    """Whether it is what our client says of a broker, in words for people."""
    return isinstance(error, ClientError)


def _reason(error: BaseException) -> str:
    text = _said(error)
    if traces := _TRACE.findall(text):
        return _STATE.sub("", str(traces[-1])).strip()
    first = _STATE.sub("", text.strip()).split("\n\tat ")[0].splitlines()
    return first[0] if first else type(error).__name__


def _said(error: BaseException) -> str:
    return str(error).split(_ABOUT_THE_QUERY)[0]
