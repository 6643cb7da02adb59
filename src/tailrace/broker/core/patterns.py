"""Patterns that clients send, compiled by RE2: the time of a match is linear, whatever the pattern."""

from collections.abc import Callable

from tailrace.broker.core.errors import Refused
from tailrace.protocol.errors import ErrorCode

PATTERN_LENGTH_MAX = 1_000
PROGRAM_BYTES_MAX = 256 << 10  # of a compiled pattern, and of what it remembers while it is matched


def full_match(pattern: str) -> Callable[[str], bool]:
    """Returns a function of whether the pattern matches the whole of a text. Raises Refused for an invalid pattern."""
    import re2

    if len(pattern) > PATTERN_LENGTH_MAX:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else error
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"invalid pattern {pattern!r}: {reason}") from None
    return lambda text: compiled.fullmatch(text) is not None
