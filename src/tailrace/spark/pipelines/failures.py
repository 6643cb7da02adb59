"""Why a query failed, and whether a restart can help. Spark reports errors as text only, with the traces of two
languages in it, followed by the plan of the query and every string in it.

The reason is one sentence: what the innermost Python error says, or, where Java failed, what Spark says of it.
"""

import re
from collections.abc import Mapping
from enum import Enum, auto

from tailrace.client.errors import ClientError, ConnectionLost
from tailrace.spark.pipelines import decoders
from tailrace.spark.source import losses
from tailrace.util.addresses import all_refuse

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
    "DATA_SOURCE_NOT_FOUND",
    "NoClassDefFoundError",
)
_IMPORT = re.compile(r"(?:ModuleNotFoundError|ImportError): (.*)", re.DOTALL)
_IMPORT_ADVICE = "Install it for the Python of Spark's driver and workers, or ship it to them"
_FORMAT = re.compile(r"(?:\w+: )?\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: (\S+)\.")
_PACKAGES = "--packages GROUP:NAME:VERSION, or in Python spark.jars.packages"
_LOSS_ADVICE = (
    "To go on without them: --on-data-loss earliest (in Python on_data_loss=), or report, which also writes them to "
    "losses.jsonl. To start over instead: a new state directory and a new output, never one of them alone."
)
_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(.*?)(?=\n\s*at |\n\n|\Z)", re.DOTALL)
_ABOUT_THE_QUERY = "=== Streaming Query ==="
_STATE = re.compile(r"\s*SQLSTATE: \w{5}\b.*", re.DOTALL)  # ends what an error of Spark's says
_OURS = re.compile(r"^tailrace\.[\w.]+\.(\w+): ")
_OF_SPARK = re.compile(r"^pyspark\.[\w.]+: ")
_NUMBER = re.compile(r"\d+")
_CALLED = re.compile(r"An error occurred while calling [^\n]*\n: ")  # how Py4J introduces what Java has thrown
_JAVA_CLASS = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z][\w$]*(?::|$))")


class RunFailed(Exception):
    """A pipeline that was given up: its name, why, and what is to be done."""


class Kind(Enum):
    """What has to change before another attempt."""

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


def require_broker(client_options: Mapping[str, str]) -> None:
    """Raises ConnectionLost where every address refuses connections, so that waiting makes no sense. Call it before
    the first request: a broker that has answered once is waited for.
    """
    servers = {name.lower(): value for name, value in client_options.items()}["kafka.bootstrap.servers"]
    if all_refuse(servers):
        raise ConnectionLost(servers, "Connection refused. Check the addresses, and that a broker runs there")


def may_pass(error: BaseException) -> bool:
    text = f"{type(error).__name__}: {_said(error)}"
    return not any(mark in text for mark in _LASTING) and not _IMPORT.match(_reason(error))


def reason_of(error: BaseException) -> str:
    """Returns the message of the innermost error, without a stack trace, and without the class name of an error of
    tailrace.
    """
    reason = _OF_SPARK.sub("", _OURS.sub("", _reason(error))).replace(losses.ADVICE, _LOSS_ADVICE)
    if found := _IMPORT.match(reason):
        return f"{found[1]}. {_IMPORT_ADVICE}"
    if found := _FORMAT.match(reason):
        return f"Spark has no format {found[1]!r}. Check its name, or add the package that has it: {_PACKAGES}"
    return reason


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark itself has failed, and no Python code that it runs, no broker and no store. A function that asks
    Spark for something, in a `Call`, may have met that.
    """
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return False
    return not _TRACE.search(_said(error)) or _OF_SPARK.match(_reason(error)) is not None


def are_alike(one: str, other: str) -> bool:
    """Whether two reasons differ in nothing but numbers, such as those of stages and batches."""
    return _NUMBER.sub("0", one) == _NUMBER.sub("0", other)


def kind_of(error: BaseException) -> Kind:
    """By the name of the error, or of the innermost one in its text."""
    found = _OURS.match(_reason(error))
    return _KINDS.get(found[1] if found else type(error).__name__, Kind.OTHER)


def is_of_client(error: BaseException) -> bool:
    """Returns whether the error is a message of our client about a broker."""
    return isinstance(error, ClientError)


def _reason(error: BaseException) -> str:
    text = _said(error)
    if traces := _TRACE.findall(text):
        return _STATE.sub("", str(traces[-1])).strip()
    cause = getattr(error, "_cause", None)  # of an error of Spark's: what Java gave as its cause
    first = _first_line(text)
    if cause is not None and first.endswith(":"):  # and nothing behind it
        return f"{first} {_reason(cause)}"
    return first or type(error).__name__


def _first_line(text: str) -> str:
    """Returns the first line of a Java message, without the stack trace and the package of an exception."""
    lines = _STATE.sub("", _CALLED.sub("", text).strip()).split("\n\tat ")[0].splitlines()
    return _JAVA_CLASS.sub("", lines[0].strip()) if lines else ""


def _said(error: BaseException) -> str:
    return str(error).split(_ABOUT_THE_QUERY)[0]
