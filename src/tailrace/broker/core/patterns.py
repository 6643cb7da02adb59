"""Regular expressions that clients send, compiled by RE2: the time of a match is linear, whatever the pattern."""

from collections.abc import Callable

from tailrace.broker.core.errors import Refused
from tailrace.protocol.errors import ErrorCode

PATTERN_LENGTH_MAX = 4_096
PROGRAM_BYTES_MAX = 1 << 20  # of a compiled pattern

Matches = Callable[[str], bool]


def full_match(pattern: str) -> Matches:
    """Returns a function of whether the pattern matches the whole of a text. Raises Refused for an invalid pattern."""
    import re2  # imported late: few clients send patterns

    if len(pattern) > PATTERN_LENGTH_MAX:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"not an RE2 pattern: {reason}") from None
    return lambda text: compiled.fullmatch(text) is not None
