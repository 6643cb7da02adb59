"""One check of `tailrace doctor`: its state, in words, and what to change."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """`advice` is what to change; empty where nothing is."""

    name: str
    state: State
    text: str
    advice: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def ok(name: str, text: str) -> Check:
    return Check(name, State.OK, text)


def warning(name: str, text: str, advice: str) -> Check:
    return Check(name, State.WARNING, text, advice)


def problem(name: str, text: str, advice: str) -> Check:
    return Check(name, State.PROBLEM, text, advice)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"


def percentile(values: list[float], share: float) -> float:
    """Returns the value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
