"""Runs a broker in this process until a signal stops it; reads plain options of `tailrace serve` without typer."""

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from tailrace.cli.common.output import ExitCode, Failure

if TYPE_CHECKING:
    from tailrace.server.http import Pages
    from tailrace.server.node import Node
    from tailrace.server.settings import Settings


class Options(TypedDict, total=False):
    data: str
    listen: list[str]
    advertise: list[str]
    config: str
    assignments: list[str]
    metrics: str
    insecure: bool


_ONCE = {"--data": "data", "--config": "config", "--metrics": "metrics"}
_REPEATED = {"--listen": "listen", "--advertise": "advertise", "--set": "assignments"}


def plain_options(arguments: list[str]) -> Options | None:
    """What the command line says, where it says so plainly: a name that is written out, and its value behind it. None
    for all else, such as --help and mistakes.
    """
    options: dict[str, object] = {}
    left = iter(arguments)
    for name in left:
        if name == "--insecure":
            options["insecure"] = True
            continue
        value = next(left, "-")
        if value.startswith("-"):
            return None
        if name in _ONCE:
            options[_ONCE[name]] = value
        elif name in _REPEATED:
            values = options.setdefault(_REPEATED[name], [])
            assert isinstance(values, list)
            values.append(value)
        else:
            return None
    return cast(Options, options)


def run_broker(
    *,
    data: str | None = None,
    listen: Sequence[str] = (),
    advertise: Sequence[str] = (),
    config: str | None = None,
    assignments: Sequence[str] = (),
    metrics: str | None = None,
    insecure: bool = False,
) -> None:
    gc.disable()  # until it is there (`spare_the_collector`): nothing that is imported is garbage
    from tailrace.server.settings import BadSettings, NotSafe, read_settings

    try:
        settings = read_settings(
            config_file=config,
            data=data,
            listen=listen,
            advertise=advertise,
            metrics=metrics,
            configs=assignments,
            insecure=insecure,
        )
    except NotSafe as error:
        raise Failure(str(error), ExitCode.REFUSED) from None
    except BadSettings as error:
        raise Failure(str(error), ExitCode.USAGE) from None
    _run(settings)


def _run(settings: "Settings") -> None:
    from tailrace.server import logging
    from tailrace.server.run import CannotStart, Failed, run_on_loop
    from tailrace.server.run import serve as serve_until_stopped

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
