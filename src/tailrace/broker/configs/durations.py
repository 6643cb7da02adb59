"""The values of share.auto.offset.reset: where a share group begins, perhaps as an ISO 8601 duration."""

import re

EARLIEST = "earliest"
LATEST = "latest"
BY_DURATION = "by_duration:"

_DURATION = re.compile(
    r"\+?P(?=.)(?:\+?(\d{1,7})D)?(?:T(?=.)(?:\+?(\d{1,9})H)?(?:\+?(\d{1,11})M)?(?:\+?(\d{1,12})(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def is_offset_reset(text: str) -> bool:
    return text in (EARLIEST, LATEST) or duration_ms(text) is not None


def duration_ms(text: str) -> int | None:
    """Returns the milliseconds of `by_duration:PnDTnHnMn.nS`, None for anything else. Negative ones are not valid."""
    if not text.startswith(BY_DURATION):
        return None
    matched = _DURATION.fullmatch(text, len(BY_DURATION))
    if matched is None:
        return None
    *whole, fraction = matched.groups()
    total = sum(int(number or 0) * unit for number, unit in zip(whole, _UNITS_MS, strict=True))
    return total + int((fraction or "").ljust(3, "0")[:3])
