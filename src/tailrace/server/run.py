"""Runs a node in this process until SIGTERM or SIGINT: what `tailrace serve` does."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from tailrace.broker.configs.keys import InvalidConfig
from tailrace.broker.metadata.records import UnknownRecord
from tailrace.broker.startup import NotOurs
from tailrace.log.layout.errors import DirectoryInUse, ForeignDirectory, LogError, StorageError, UnknownFormat
from tailrace.records.errors import CorruptBatch
from tailrace.server.children.http_port import INSTALL, HttpPort, NoPort, missing_packages, open_port
from tailrace.server.children.late_start import LateStart, nothing
from tailrace.server.http import Pages
from tailrace.server.node import Node
from tailrace.server.settings import Settings

logger = logging.getLogger("tailrace.server")

Result = TypeVar("Result")

SWITCH_INTERVAL_S = 0.0001
COLLECTED_AFTER = (50_000, 20, 50)  # allocations, and collections of the younger generation


class CannotStart(Exception):
    """The broker refuses to start: the message says why, and what to do."""


class Failed(Exception):
    """The broker could not start, or had to stop: its disk failed."""


def run_on_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs it on uvloop, or on asyncio's own loop if uvloop is not installed."""
    # Makes a thread that has read from the disk yield to the loop soon: the default of 5 ms would delay clients.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Started(NamedTuple):
    """A broker that serves clients. `without` says why it has no gateway, if that needs saying."""

    node: Node
    pages: Pages
    http: HttpPort | None
    without: str | None


async def serve(settings: Settings, ready: Callable[[Started], None], warnings: Sequence[str] = ()) -> None:
    """Serves until SIGTERM or SIGINT, and then stops cleanly. Raises CannotStart, and Failed if the disk failed.

    `warnings` about the settings are logged first.
    """
    for warning in warnings:
        logger.warning("%s", warning)
    node = Node(settings.data, settings.listen, settings.configs)
    await _start(node)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        node.loop.add_signal_handler(number, stop.set)
    pages = Pages(node)
    children: LateStart | None = None
    try:
        await _start_pages(pages, settings)
        http, without = _http_port(settings)
        spare_the_collector()
        children = LateStart(node, http)
        ready(Started(node, pages, http, without))
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait()), node.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not node.failed.done():
            logger.info("stopping")
            ended = children.stop() if children is not None else nothing
            await _stop(node)
            ended()
            logger.info("stopped")
        await pages.stop()
    if node.failed.done():
        raise Failed(f"{node.failed.result()}; the broker stops, because it can no longer keep its guarantees")


def spare_the_collector() -> None:
    """Makes garbage collections rare: in a broker of thousands of topics one holds the loop for a tenth of a second.

    Freezes all existing objects. Requests leave no reference cycles behind, so their memory does not wait for a
    collection; tests/server/test_cycles.py proves that.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    gc.enable()


async def _stop(node: Node) -> None:
    try:
        await node.stop()
    except StorageError as error:
        raise Failed(f"{error}; acknowledged data is on disk, and the next start recovers the logs") from error


async def _start(node: Node) -> None:
    try:
        await node.start()
    except DirectoryInUse as error:
        raise CannotStart(f"{error}: is another broker running on it? --data chooses another directory") from None
    except (ForeignDirectory, NotOurs, UnknownFormat, UnknownRecord, InvalidConfig) as error:
        raise CannotStart(str(error)) from None
    except OSError as error:
        if error.filename is not None:
            raise CannotStart(f"{error.filename}: {error.strerror}; --data chooses another directory") from None
        raise CannotStart(f"{error.strerror or error}; --listen HOST:PORT chooses another address") from None
    except (LogError, CorruptBatch) as error:
        raise Failed(f"the broker cannot start: {error}\n  tailrace log verify {node.data}   says more") from error


def _http_port(settings: Settings) -> tuple[HttpPort | None, str | None]:
    if settings.http is None:
        return None, None
    if missing := missing_packages():
        why = f"{' and '.join(missing)} not installed; {INSTALL}"
        if not settings.http.is_default:
            raise CannotStart(f"no HTTP: {why}. --http off does without")
        return None, why
    try:
        return open_port(settings.http), None
    except NoPort as error:
        raise CannotStart(
            f"no HTTP: {error}; --http HOST:PORT chooses another address, and --http off does without"
        ) from None


async def _start_pages(pages: Pages, settings: Settings) -> None:
    if settings.metrics is None:
        return
    try:
        await pages.start(*settings.metrics)
    except OSError as error:
        if not settings.metrics_is_default:
            raise CannotStart(
                f"no /metrics: {error.strerror or error}; --metrics HOST:PORT chooses another address, and "
                "--metrics off does without"
            ) from None
        logger.warning("no /metrics: %s; --metrics HOST:PORT chooses another address", error.strerror or error)
