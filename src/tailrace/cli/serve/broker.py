"""Runs a broker in this process until a signal stops it; reads plain options of `tailrace serve` without typer."""

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from tailrace.cli.common.broken_pipe import ending_with_the_reader
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.serve.check import print_refusal, print_review
from tailrace.util.host_port import shown

if TYPE_CHECKING:
    from tailrace.server.run import Started
    from tailrace.server.settings import Settings


class Options(TypedDict, total=False):
    data: str
    listen: list[str]
    advertise: list[str]
    config: str
    assignments: list[str]
    metrics: str
    http: str
    http_token_file: str
    insecure: bool
    no_monitor: bool
    check: bool
    as_json: bool


_FLAGS = {"--insecure": "insecure", "--no-monitor": "no_monitor", "--check": "check", "--json": "as_json"}
_ONCE = {
    "--data": "data",
    "--config": "config",
    "--metrics": "metrics",
    "--http": "http",
    "--http-token-file": "http_token_file",
}
_REPEATED = {"--listen": "listen", "--advertise": "advertise", "--set": "assignments"}


def plain_options(arguments: list[str]) -> Options | None:
    """Returns the options of a plain command line: names that are written out, each with its value behind it. Returns
    None for all others, such as --help and mistakes.
    """
    options: dict[str, object] = {}
    left = iter(arguments)
    for name in left:
        if name in _FLAGS:
            options[_FLAGS[name]] = True
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
    http: str | None = None,
    http_token_file: str | None = None,
    insecure: bool = False,
    no_monitor: bool = False,
    check: bool = False,
    as_json: bool = False,
) -> None:
    """Runs a broker until a signal stops it. With `check`, prints the settings that would count instead."""
    if as_json and not check:
        raise Failure("--json goes with --check", ExitCode.USAGE)
    gc.disable()  # until it is there (`spare_the_collector`): nothing that is imported is garbage
    from tailrace.server.settings import BadSettings, NotSafe, review_settings

    try:
        review = review_settings(
            config_file=config,
            data=data,
            listen=listen,
            advertise=advertise,
            metrics=metrics,
            http=http,
            http_token_file=http_token_file,
            configs=[*assignments, *(["tailrace.monitor.enable=false"] if no_monitor else [])],
            insecure=insecure,
        )
    except BadSettings as error:
        if as_json:
            print_refusal(str(error))
        code = ExitCode.REFUSED if isinstance(error, NotSafe) and not check else ExitCode.USAGE
        raise Failure(str(error), code) from None
    if check:
        with ending_with_the_reader():
            print_review(review, as_json=as_json)
        return
    _run(review.settings, review.warnings)


def _run(settings: "Settings", warnings: Sequence[str]) -> None:
    from tailrace.server.run import CannotStart, Failed, run_on_loop
    from tailrace.server.run import serve as serve_until_stopped
    from tailrace.util import logging

    logging.set_up(colours=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))
    try:
        run_on_loop(serve_until_stopped(settings, _say_ready, warnings))
    except CannotStart as error:
        raise Failure(str(error), ExitCode.REFUSED) from None
    except Failed as error:
        raise Failure(str(error), ExitCode.FAILED) from None


def _say_ready(started: "Started") -> None:
    listeners, pages = started.node.listeners, started.pages
    for listener in listeners:
        print(f"listening on {shown(listener.host, listener.port)}")
    bootstrap = shown(listeners[0].host, listeners[0].port)
    option = "" if bootstrap == "127.0.0.1:9092" else f" -b {bootstrap}"
    print(f"\nConnect any Kafka client to {bootstrap}, or try:")
    print(f"  echo hello | tailrace produce greetings{option}")
    print(f"  tailrace tail greetings --from earliest{option}")
    if started.http is not None:
        print(f"  curl http://{shown(*started.http.address)}/v1/topics")
    if pages.address is not None:
        print(f"  curl http://{shown(*pages.address)}/metrics")
    if started.without is not None:
        print(f"No HTTP: {started.without}")
    sys.stdout.flush()
