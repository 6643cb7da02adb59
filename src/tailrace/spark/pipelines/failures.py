"""Why a query has failed, and whether it may pass. Spark passes on nothing but texts, with the traces of two languages
in them.
"""

import re

from tailrace.spark import losses
from tailrace.spark.pipelines import decoders

# What another try cannot change. Of a Python process of Spark's, only the names of errors arrive.
_LASTING = (
    losses.MARK,
    decoders.MARK,
    "BadOption",  # and BadOptions
    "AnalysisException",
    "ParseException",
    "SplitChanged",  # the rows of a batch that is written again are others: `exactly_once.py`
    "AlreadyFurther",
)
_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(.*?)(?=\n\s*at |\n\n|\Z)", re.DOTALL)


class RunFailed(Exception):
    """A pipeline that was given up: its name, why, and what is to be done."""


def may_pass(error: BaseException) -> bool:
    text = f"{type(error).__name__}: {error}"
    return not any(mark in text for mark in _LASTING)


def is_loss(error: BaseException) -> bool:
    return losses.MARK in str(error)


def reason_of(error: BaseException) -> str:
    """What the innermost error says, without traces."""
    text = str(error)
    if traces := _TRACE.findall(text):
        return str(traces[-1]).strip()
    first = text.strip().split("\n\tat ")[0].splitlines()
    return first[0] if first else type(error).__name__
