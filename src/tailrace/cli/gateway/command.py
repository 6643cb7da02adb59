"""`tailrace gateway`: runs the gateway by itself, in front of any Kafka."""

from typing import Annotated

import typer

from tailrace.cli.common.connection import DEFAULT, Bootstrap, ClientConfig, pairs
from tailrace.cli.common.output import ExitCode, Failure

PORT = 9080
LISTEN = f"127.0.0.1:{PORT}"

ListenOn = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where HTTP clients connect.")]
TokenFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Has a token that clients need: `Authorization: Bearer TOKEN`.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen beyond this machine without a token.")]
Config = Annotated[
    str | None, typer.Option(metavar="FILE", help="Configs `tailrace.http.*`, as FILE.toml or .properties.")
]


def gateway(
    listen: ListenOn = LISTEN,
    token_file: TokenFile = None,
    insecure: Insecure = False,
    config: Config = None,
    bootstrap: Bootstrap = DEFAULT,
    client_config: ClientConfig = None,
) -> None:
    """Serve topics over HTTP. Works in front of any Kafka.

    \b
    tailrace gateway -b kafka:9092
    tailrace gateway -b kafka:9092 --listen 0.0.0.0:9080 --token-file token
    tailrace gateway -b kafka:9093 -X security.protocol=SSL

    A broker of tailrace runs one by itself, unless it is started with --http off.
    """
    address = _address(listen)
    token = _token(token_file)
    _require_safe(address[0], token, insecure)
    properties = {"bootstrap.servers": bootstrap, **pairs(client_config, "--client-config")}
    try:
        from tailrace.gateway import alone
        from tailrace.gateway.kafka.connection import BadProperties
        from tailrace.gateway.settings import BadSetting, settings_from
    except ImportError as error:
        raise Failure(f"{error.name} is not installed; pip install 'tailrace[gateway]'", ExitCode.FAILED) from None
    try:
        alone.run(properties, settings_from(_configs(config)), address, token)
    except BadSetting as error:
        raise Failure(str(error), ExitCode.USAGE) from None
    except BadProperties as error:
        raise Failure(f"the client cannot be set up: {error}", ExitCode.USAGE) from None
    except OSError as error:
        why = f"{error.strerror or error}; --listen HOST:PORT chooses another address"
        raise Failure(f"cannot listen on {listen}: {why}", ExitCode.REFUSED) from None


def _address(text: str) -> tuple[str, int]:
    from tailrace.util.host_port import BadAddress, parse

    try:
        return parse(text, PORT)
    except BadAddress as error:
        raise Failure(f"--listen: {error}", ExitCode.USAGE) from None


def _token(path: str | None) -> str | None:
    from tailrace.util.tokens import BadToken, read_token

    try:
        return None if path is None else read_token(path)
    except BadToken as error:
        raise Failure(f"--token-file: {error}", ExitCode.USAGE) from None


def _require_safe(host: str, token: str | None, insecure: bool) -> None:
    from tailrace.util.host_port import is_loopback

    if token is None and not insecure and not is_loopback(host):
        raise Failure(
            f"refusing to listen on {host} without a token: anyone who reaches this port could read and write your "
            "topics.\n"
            "  With a token:             --token-file FILE\n"
            "  On a network you trust:   --insecure",
            ExitCode.REFUSED,
        )


def _configs(path: str | None) -> dict[str, str]:
    from tailrace.cli.common.config_file import read_configs

    return {} if path is None else read_configs(path)
