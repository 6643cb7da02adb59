"""Output of `tailrace config show`: the configs of a broker, or those of all brokers; as JSON, or for people."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from tailrace.cli.common import configs, output, units
from tailrace.cli.common.admin_requests import Config, Setting
from tailrace.cli.common.output import ExitCode, Failure


def rows(found: dict[str, Config], names: list[str], *, defaults: bool) -> list[dict[str, Any]]:
    """Those of these names, or all: without `defaults`, only what was set somewhere."""
    require(names, found)
    return [
        {
            "name": name,
            "value": config.value,
            "source": configs.source(config.source),
            "default": default_of(config),
            "changes": "at the start" if config.is_read_only else "at run time",
            "secret": config.is_secret,
        }
        for name, config in sorted(found.items())
        if (name in names if names else defaults or config.source != configs.DEFAULT)
    ]


def require(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises Failure for a name that brokers do not have."""
    known = list(known)
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else "; `tailrace config show --all` lists all"
            raise Failure(f"brokers have no config {name!r}{hint}", ExitCode.NOT_FOUND)


def after(config: Config, value: str | None, layer: int) -> str | None:
    """The value that counts once `value` is set in a layer (a source), or with None is taken back from there."""
    if config.source < layer:  # of another layer, which counts more
        return config.value
    if value is not None:
        return value
    return _text(config, next((one for one in config.settings if one.source != layer), None))


def default_of(config: Config) -> str | None:
    """None where the broker has not said, or there is none."""
    return _text(config, next((one for one in config.settings if one.source == configs.DEFAULT), None))


def _text(config: Config, setting: Setting | None) -> str | None:
    """With its name, where another config stands in: log.retention.hours for log.retention.ms."""
    if setting is None or setting.name == config.name or setting.value is None:
        return None if setting is None else setting.value
    return f"{setting.name}={setting.value}"


def show(shown: list[dict[str, Any]], whose: str) -> None:
    print(whose)
    if not shown:
        print("  every config is at its default; --all shows them")
        return
    drawn = output.table("CONFIG", "VALUE", "FROM", "CHANGES", texts=("VALUE", "FROM", "CHANGES"))
    for row in shown:
        value = "(secret)" if row["secret"] else units.explained(row["name"], row["value"])
        drawn.add_row(row["name"], value, row["source"], row["changes"])
    output.draw(drawn, output.console(markup=False))
