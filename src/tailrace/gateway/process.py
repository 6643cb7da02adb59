"""The gateway as a child process of the broker: inherits sockets, learns port and token on stdin, and writes metrics to
stdout.
"""

import asyncio
import socket
import sys

from tailrace.gateway.http.server import run_on_loop
from tailrace.gateway.service import Access, Gateway
from tailrace.gateway.settings import BadSetting, settings_from
from tailrace.util.broker_child import begin, properties_of, show


def main() -> None:
    greeting = begin("gateway")
    try:
        settings = settings_from(greeting["configs"])
    except BadSetting as error:
        sys.exit(f"the gateway cannot start: {error}")
    sockets = [socket.socket(fileno=descriptor) for descriptor in greeting["sockets"]]
    gateway = Gateway(properties_of(greeting), settings, Access(greeting["host"], greeting["http_token"]))
    run_on_loop(gateway.run(sockets, asyncio.Event(), show))
