"""`tailrace serve`: a broker in this process, until it is told to stop."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.server.http import Pages
    from tailrace.server.node import Node
    from tailrace.server.settings import Settings


Data = Annotated[str | None, typer.Option(metavar="DIR", help="Where logs are kept. [./tailrace-data]")]
ListenOn = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="Where clients connect; may be repeated. [127.0.0.1:9092]"),
]
Advertise = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST:PORT", help="What clients are told to connect to, one for each --listen."),
]
Config = Annotated[str | None, typer.Option(metavar="FILE.toml", help="A file of settings; flags count more.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="key=value", help="A broker config, by Kafka's name; may be repeated."),
]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where /metrics, /healthz and /readyz are, or `off`. [127.0.0.1:9464]"),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen beyond this machine without authentication.")]


def serve(
    data: Data = None,
    listen: ListenOn = None,
    advertise: Advertise = None,
    config: Config = None,
    assignments: Assignments = None,
    metrics: Metrics = None,
    insecure: Insecure = False,
) -> None:
    """Run a broker. Any Kafka client can use it.

    \b
    tailrace serve
    tailrace serve --data /var/lib/tailrace --listen 127.0.0.1:9092 --listen [::1]:9092
    tailrace serve --set num.partitions=6 --set auto.create.topics.enable=false
    """
    from tailrace.server.settings import BadSettings, NotSafe, read_settings

    try:
        settings = read_settings(
            config_file=config,
            data=data,
            listen=listen or (),
            advertise=advertise or (),
            metrics=metrics,
            configs=assignments or (),
            insecure=insecure,
        )
    except NotSafe as error:
        raise Failure(str(error), ExitCode.REFUSED) from None
    except BadSettings as error:
        raise Failure(str(error), ExitCode.USAGE) from None
    _run(settings)


def _run(settings: "Settings") -> None:
    from tailrace.server import logging
    from tailrace.server.running import CannotStart, Failed, run_on_loop
    from tailrace.server.running import serve as serve_until_stopped

    logging.set_up(colours=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))
    try:
        run_on_loop(serve_until_stopped(settings, _say_ready))
    except CannotStart as error:
        raise Failure(str(error), ExitCode.REFUSED) from None
    except Failed as error:
        raise Failure(str(error), ExitCode.FAILED) from None


def _say_ready(node: "Node", pages: "Pages") -> None:
    for listener in node.listeners:
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        print(f"listening on {host}:{listener.port}")
    first = node.listeners[0]
    host = f"[{first.host}]" if ":" in first.host else first.host
    bootstrap = f"{host}:{first.port}"
    option = "" if bootstrap == "127.0.0.1:9092" else f" -b {bootstrap}"
    print(f"\nConnect any Kafka client to {bootstrap}, or try:")
    print(f"  echo hello | tailrace produce greetings{option}")
    print(f"  tailrace tail greetings --from earliest{option}")
    if pages.address is not None:
        print(f"  curl http://{pages.address[0]}:{pages.address[1]}/metrics")
    sys.stdout.flush()
