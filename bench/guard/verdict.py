"""What the numbers mean. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.harness.measure import Sample


@dataclass(frozen=True, slots=True)
class Path:
    """A hot path, measured: the time for some unit of work, round by round."""

    name: str
    unit: str
    limit: float  # of the ratio
    ours: tuple[float, ...]
    base: tuple[float, ...]

    @property
    def ratio(self) -> Sample:
        return Sample.of([mine / theirs for mine, theirs in zip(self.ours, self.base, strict=True)])

    @property
    def is_slower(self) -> bool:
        return self.ratio.median > self.limit


def failed(measured: Sequence[Path]) -> bool:
    """Of one path, measured one or more times: whether it was slower each time."""
    return all(path.is_slower for path in measured)


def words(measured: Sequence[Path]) -> tuple[str, str, str, str, str]:
    """For people: ours, base, ratio, limit and verdict, by the last time that it was measured."""
    path = measured[-1]
    ratio, ours, base = path.ratio, Sample.of(path.ours), Sample.of(path.base)
    said = "SLOWER" if failed(measured) else "ok" if len(measured) == 1 else f"ok, measured {len(measured)} times"
    compared = f"× {ratio.median:.3f} ± {(ratio.high - ratio.low) / 2:.2g}"
    return f"{ours.median:.3g} {path.unit}", f"{base.median:.3g}", compared, f"{path.limit:g}", said
