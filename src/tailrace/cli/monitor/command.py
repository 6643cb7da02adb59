"""`tailrace monitor`: runs the monitor by itself, beside any Kafka."""

import json
from typing import Annotated

import typer

from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, pairs
from tailrace.cli.common.options import AsJson
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.lag.source import opened

METRICS = "127.0.0.1:9465"

Metrics = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where /metrics is, or `off`.")]
Config = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="tailrace.alert.* and tailrace.monitor.*, as FILE.toml or .properties."),
]


def monitor(
    metrics: Metrics = METRICS,
    config: Config = None,
    once: Annotated[bool, typer.Option("--once", help="Measure once, print it, and end. Writes nothing.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Measure the lag of all groups, raise alerts, and serve metrics for Prometheus. Works against any Kafka.

    \b
    tailrace monitor -b kafka:9092
    tailrace monitor -b kafka:9092 --config alerts.toml --metrics 0.0.0.0:9465
    tailrace monitor -b kafka:9092 --once --json

    A broker of tailrace runs one by itself, unless tailrace.monitor.enable=false: one monitor for each cluster.
    Lag is published in the topic __tailrace_lag, and alerts in __tailrace_alerts.
    """
    from tailrace.cli.common.config_file import read_configs
    from tailrace.monitor.alone import AloneMonitor, BadConfig, settings_of

    if as_json and not once:
        raise Failure("--json goes with --once", ExitCode.USAGE)
    try:
        settings = settings_of(read_configs(config) if config is not None else {})
    except BadConfig as error:
        raise Failure(str(error), ExitCode.USAGE) from None
    pairs(client_config, "--client-config")
    with opened(lambda properties: AloneMonitor(properties, settings), bootstrap, client_config, waits=True) as alone:
        if once:
            found = alone.once()
            print(json.dumps(found) if as_json else _words(found))
            return
        host, port = _address(metrics)
        try:
            alone.run(host, port)
        except OSError as error:
            why = f"{error.strerror or error}; --metrics HOST:PORT chooses another address"
            raise Failure(f"no /metrics at {metrics}: {why}", ExitCode.REFUSED) from None


def _address(text: str) -> tuple[str, int | None]:
    """The port is None for `off`."""
    if text in ("off", "none"):
        return "", None
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise Failure(f"--metrics takes HOST:PORT or off, not {text!r}", ExitCode.USAGE)
    return host.strip("[]"), int(port)


def _words(found: "dict[str, object]") -> str:
    groups, alerts = found["groups"], found["alerts"]
    assert isinstance(groups, list)
    assert isinstance(alerts, list)
    lines = [f"{len(groups)} partitions of groups; {len(alerts)} rules are broken"]
    return "\n".join([*lines, *(f"{one['rule']}: {one['message']}" for one in alerts)])
