"""Values of configs and quotas with units: parses `1h` and `10MB`, and explains 3600000 and 10000000. Pure.

Brokers take plain numbers only. Which unit a number has follows from the name of its config: `retention.ms` is in
milliseconds, `segment.bytes` and `producer_byte_rate` are in bytes.
"""

import re
from collections.abc import Mapping
from decimal import Decimal

from tailrace.cli.common import output
from tailrace.cli.common.output import ExitCode, Failure

_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {
    "b": 1,
    **{unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), 1)},
    **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), 1)},
}
_TIME_CONFIGS = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}  # by the last word of the name
_AMOUNT = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]+)")
_AMOUNTS = re.compile(rf"(?:{_AMOUNT.pattern})+\s*")
_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_NO_LIMIT = 1 << 60


def plain(name: str, text: str) -> str:
    """The value of the config `name` as a broker takes it: `1h30m` of `retention.ms` is 5400000.

    A text without units is returned as it is: brokers refuse what they do not understand. Raises Failure where a unit
    does not fit the config, or where the config would need a fraction.
    """
    word = re.split(r"[._]", name)[-1]
    if word in _TIME_CONFIGS:
        units, one = _MS, _TIME_CONFIGS[word]
    elif _is_size(name):
        units, one = _BYTES, 1
    else:
        return text
    if not _AMOUNTS.fullmatch(text):
        return text
    total = _sum(text, units)
    if total is None:
        raise Failure(f"{name} cannot be {text!r}: its units are {', '.join(units)}", ExitCode.USAGE)
    if total % one:
        raise Failure(f"{name} cannot be {text}: it is no whole number of {word}", ExitCode.USAGE)
    return str(int(total // one))


def milliseconds(option: str, text: str) -> int:
    """A time that an option takes, such as `10m` or `1h30m`. Raises Failure for anything else."""
    total = _sum(text, _MS) if _AMOUNTS.fullmatch(text) else None
    if total is None:
        raise Failure(f"{option} takes a time, such as 90s, 10m or 2h, not {text!r}", ExitCode.USAGE)
    return int(total)


def converted(configs: Mapping[str, str]) -> dict[str, str]:
    """The values of all these configs as a broker takes them. Raises Failure as `plain` does."""
    return {name: plain(name, text) for name, text in configs.items()}


def explained(name: str, value: str | None) -> str:
    """The value, and what it means where it is a long number."""
    if value is None or not value.isdecimal():
        return "" if value is None else value
    amount = int(value)
    if _is_size(name) and amount >= 1000:
        return f"{value} ({output.size(amount)})" if amount < _NO_LIMIT else f"{value} (no limit)"
    if name.endswith(".ms"):
        if amount >= _NO_LIMIT:
            return f"{value} (no limit)"
        for step, unit in _STEPS:
            if amount >= step:
                return f"{value} ({amount / step:.4g} {unit})"
    return value


def _is_size(name: str) -> bool:
    return not {"byte", "bytes"}.isdisjoint(re.split(r"[._]", name)) or name.endswith(".buffer.size")


def _sum(text: str, units: dict[str, int]) -> Decimal | None:
    """The amounts of `1h30m` together; None where `text` is not made of amounts in these units."""
    total, position = Decimal(0), 0
    while position < len(text.rstrip()):
        amount = _AMOUNT.match(text, position)
        if amount is None or amount[2].lower() not in units:
            return None
        total += Decimal(amount[1]) * units[amount[2].lower()]
        position = amount.end()
    return total if position else None
