import pytest

from tailrace.cli.common.output import Failure
from tailrace.cli.common.units import explained, plain


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "1h", "3600000"),
        ("retention.ms", "1h30m", "5400000"),
        ("retention.ms", "1 d", "86400000"),
        ("retention.ms", "10 min", "600000"),
        ("retention.ms", "1.5s", "1500"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "86400000", "86400000"),
        ("retention.ms", "soon", "soon"),
        ("quota.window.size.seconds", "2m", "120"),
        ("log.retention.hours", "7d", "168"),
        ("segment.bytes", "10MB", "10000000"),
        ("segment.bytes", "10 MiB", "10485760"),
        ("producer_byte_rate", "1.5kb", "1500"),
        ("log.cleaner.dedupe.buffer.size", "128MiB", "134217728"),
        ("max.connections", "1h", "1h"),
        ("cleanup.policy", "compact", "compact"),
        ("broker.rack", "1m", "1m"),
    ],
)
def test_units_become_plain_numbers_where_they_fit(name: str, text: str, value: str) -> None:
    assert plain(name, text) == value


@pytest.mark.parametrize(("name", "text"), [("retention.ms", "0.0001s"), ("log.retention.hours", "90m")])
def test_fractions_of_what_a_config_counts_are_refused(name: str, text: str) -> None:
    with pytest.raises(Failure, match="no whole number"):
        plain(name, text)


@pytest.mark.parametrize(
    ("name", "text", "units"),
    [
        ("retention.ms", "10MB", "ms, s, m, min, h, d, w"),
        ("retention.ms", "2weeks", "ms, s, m, min, h, d, w"),
        ("retention.ms", "1h 2x", "ms, s, m, min, h, d, w"),
        ("segment.bytes", "1h", "b, kb, mb, gb, tb, kib, mib, gib, tib"),
    ],
)
def test_a_unit_that_does_not_fit_a_config_is_refused_with_those_that_do(name: str, text: str, units: str) -> None:
    with pytest.raises(Failure, match=f"^{name} cannot be '{text}': its units are {units}$"):
        plain(name, text)


def test_long_numbers_are_explained() -> None:
    assert explained("retention.ms", "3600000") == "3600000 (1 h)"
    assert explained("segment.bytes", "10000000") == "10000000 (10.0 MB)"
    assert explained("flush.ms", str((1 << 63) - 1)) == f"{(1 << 63) - 1} (no limit)"
    assert explained("retention.ms", "-1") == "-1"
    assert explained("retention.ms", None) == ""
