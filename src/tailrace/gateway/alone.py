"""The gateway by itself, in front of any Kafka: what `tailrace gateway` does."""

import asyncio
import logging as standard_logging
import os
import signal
import socket
import sys
from collections.abc import Mapping

from tailrace.gateway.http.server import run_on_loop
from tailrace.gateway.service import Access, Gateway
from tailrace.gateway.settings import Settings
from tailrace.util import logging
from tailrace.util.host_port import shown

logger = standard_logging.getLogger("tailrace.gateway")

BACKLOG = 2048


def run(properties: Mapping[str, str], settings: Settings, address: tuple[str, int], token: str | None) -> None:
    """Serves HTTP until a signal. Raises BadProperties, and OSError if the address is in use."""
    logging.set_up(colours=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))
    gateway = Gateway(properties, settings, Access(address[0], token))
    sock = _listening(*address)
    logger.info("listening on http://%s", shown(*sock.getsockname()[:2]))
    run_on_loop(_run(gateway, sock))


def _listening(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


async def _run(gateway: Gateway, sock: socket.socket) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await gateway.run([sock], stop)
