"""`tailrace serve`: its options, as `--help` shows them. Plain options bypass this module (`cli/serve/broker`)."""

from typing import Annotated

import typer

from tailrace.cli.serve.broker import run_broker

Data = Annotated[str | None, typer.Option(metavar="DIR", help="Where logs are kept. [./tailrace-data]")]
ListenOn = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="Where clients connect; may be repeated. [127.0.0.1:9092]"),
]
Advertise = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="What clients are told to connect to, one for each --listen."),
]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="Settings, as FILE.toml or Kafka's FILE.properties.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="key=value", help="A broker config, by Kafka's name; may be repeated."),
]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where /metrics, /healthz and /readyz are, or `off`. [127.0.0.1:9464]"),
]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where topics can be used over HTTP, or `off`. [127.0.0.1:9080, or the next free port]",
    ),
]
HttpTokenFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Has a token that HTTP clients need: `Authorization: Bearer TOKEN`."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen beyond this machine without authentication.")]
NoMonitor = Annotated[bool, typer.Option("--no-monitor", help="Start no monitor: no lag in seconds, no alerts.")]
Check = Annotated[bool, typer.Option("--check", help="Start nothing: show the settings that would count.")]
AsJson = Annotated[bool, typer.Option("--json", help="With --check: for programs.")]


def serve(
    data: Data = None,
    listen: ListenOn = None,
    advertise: Advertise = None,
    config: Config = None,
    assignments: Assignments = None,
    metrics: Metrics = None,
    http: Http = None,
    http_token_file: HttpTokenFile = None,
    insecure: Insecure = False,
    no_monitor: NoMonitor = False,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Run a broker. Any Kafka client can use it.

    \b
    tailrace serve
    tailrace serve --data /srv/data --listen 127.0.0.1:9092 --listen [::1]:9092
    tailrace serve --set num.partitions=6 --set auto.create.topics.enable=false
    tailrace serve --config server.properties --check

    --check exits with 0 if a broker would accept the settings, else with 2. It touches no data directory.
    """
    run_broker(
        data=data,
        listen=listen or (),
        advertise=advertise or (),
        config=config,
        assignments=assignments or (),
        metrics=metrics,
        http=http,
        http_token_file=http_token_file,
        insecure=insecure,
        no_monitor=no_monitor,
        check=check,
        as_json=as_json,
    )
