"""Ratios as a picture: a row for each, on a logarithmic axis, with its quartiles and what is demanded. SVG, by hand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.harness.measure import Figure, Sample

WIDTH, LABELS, VALUES = 960, 400, 76
ROW, TOP, BOTTOM = 22, 46, 44
COLOURS = {"aim": "#1a7f4b", "ok": "#4fa36f", "missed": "#c0392b", "information": "#6b7785"}
_TICKS = (1, 2, 5)
_FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, which are powers of ten times 1, 2 or 5."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float]) -> "Axis":
        """The least one that holds all of them, and one."""
        least, greatest = min(*values, 1.0), max(*values, 1.0)
        ticks = [digit * 10.0**power for power in range(-6, 7) for digit in _TICKS]
        return cls(max(t for t in ticks if t < least * 0.999), min(t for t in ticks if t > greatest * 1.001))

    def ticks(self) -> list[float]:
        wanted = [digit * 10.0**power for power in range(-6, 7) for digit in _TICKS]
        return [tick for tick in wanted if self.low * 0.999 <= tick <= self.high * 1.001]

    def x(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return LABELS + share * (WIDTH - LABELS - VALUES)


def ratios(title: str, figures: Sequence[Figure]) -> str | None:
    """Of those figures that have one; None where none has."""
    rows = [(figure, figure.compared) for figure in figures if _is_drawn(figure)]
    if not rows:
        return None
    axis = Axis.around([value for figure, sample in rows if sample for value in _values(figure, sample)])
    height = TOP + ROW * len(rows) + BOTTOM
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}'>",
        f"<rect width='{WIDTH}' height='{height}' fill='white'/>",
        _text(12, 24, title, size=15, weight="bold"),
        *_grid(axis, height),
        *(part for at, (figure, sample) in enumerate(rows) if sample for part in _row(axis, at, figure, sample)),
        *_legend(height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _is_drawn(figure: Figure) -> bool:
    return figure.kind == "ratio" and figure.compared is not None and figure.compared.low > 0


def _values(figure: Figure, sample: Sample) -> list[float]:
    demanded = figure.demanded
    limits = [demanded.limit, demanded.aim] if demanded is not None and demanded.of == "ratio" else []
    return [sample.low, sample.high, *(limit for limit in limits if limit is not None)]


def _grid(axis: Axis, height: int) -> list[str]:
    parts = []
    for tick in axis.ticks():
        colour, width = ("#555555", 1.4) if tick == 1 else ("#dddddd", 1)
        parts.append(_line(axis.x(tick), TOP - 6, axis.x(tick), height - BOTTOM, colour, width))
        parts.append(_text(axis.x(tick), TOP - 10, f"× {tick:g}", size=10, anchor="middle", colour="#666666"))
    return parts


def _row(axis: Axis, at: int, figure: Figure, sample: Sample) -> list[str]:
    """A line from one to the median, a bar over the quartiles, and marks where the limits are."""
    y = TOP + ROW * at + ROW / 2
    colour = COLOURS[figure.verdict]
    parts = [
        _text(LABELS - 10, y + 4, figure.title, size=11, anchor="end"),
        _line(axis.x(1), y, axis.x(sample.median), y, colour, 2),
        _line(axis.x(sample.low), y, axis.x(sample.high), y, colour, 6, opacity=0.4),
        f"<circle cx='{axis.x(sample.median):.1f}' cy='{y:.1f}' r='4.5' fill='{colour}'/>",
        _text(WIDTH - 10, y + 4, f"× {sample.median:.3g}", size=11, anchor="end", colour=colour),
    ]
    if figure.demanded is not None and figure.demanded.of == "ratio":
        parts.append(_line(axis.x(figure.demanded.limit), y - 8, axis.x(figure.demanded.limit), y + 8, "#c0392b", 2))
        if figure.demanded.aim is not None:
            parts.append(_line(axis.x(figure.demanded.aim), y - 8, axis.x(figure.demanded.aim), y + 8, "#1a7f4b", 2))
    return parts


def _legend(height: int) -> list[str]:
    y = height - 14
    parts = [_text(12, y, "ours / theirs, median and quartiles:", size=11, colour="#444444")]
    x = 232
    for verdict, words in {"aim": "aim", "ok": "ok", "missed": "missed", "information": "no demand"}.items():
        parts.append(f"<circle cx='{x}' cy='{y - 4}' r='4.5' fill='{COLOURS[verdict]}'/>")
        parts.append(_text(x + 9, y, words, size=11, colour="#444444"))
        x += 40 + 7 * len(words)
    for colour, words in (("#c0392b", "must"), ("#1a7f4b", "aim")):
        parts.append(_line(x, y - 12, x, y + 4, colour, 2))
        parts.append(_text(x + 7, y, words, size=11, colour="#444444"))
        x += 30 + 7 * len(words)
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float, opacity: float = 1) -> str:
    where = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {where} stroke='{colour}' stroke-width='{width}' stroke-opacity='{opacity}'/>"


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = "#222222",
) -> str:
    style = f"{_FONT} font-size='{size}' font-weight='{weight}' text-anchor='{anchor}' fill='{colour}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(words)}</text>"
