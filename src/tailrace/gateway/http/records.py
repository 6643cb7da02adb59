"""Records each request: counts and times for the metrics, and a line of JSON for the access log, if it is wanted.

It is the outermost layer of the app, so that it also sees requests that are refused, and errors that no layer handled.
"""

import json
import logging
import sys
import time
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.gateway.http.bodies import Gone
from tailrace.gateway.http.problems import Problem
from tailrace.gateway.metrics import Metrics

logger = logging.getLogger("tailrace.gateway")
access = logging.getLogger("tailrace.gateway.http.records")

OTHER = "other"  # the route of a request that has none
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
URL_MAX = 2000
GONE = 499  # as the status of a request whose client did not wait for the response


class Records:
    def __init__(self, app: ASGIApp, metrics: Metrics, *, access_log: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._has_log = access_log
        if access_log:
            log_lines_alone()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.monotonic()
        status = sent = 0

        async def note(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Gone:
            status = status or GONE
        except Exception:
            logger.exception("unexpected error while handling %s %s", scope["method"], scope["path"][:URL_MAX])
            if not status:
                await Problem("internal-error", "the gateway's log has the error").response()(scope, receive, note)
        finally:
            seconds = time.monotonic() - begun
            method = scope["method"] if scope["method"] in METHODS else OTHER
            self._metrics.count(method, route_of(scope), status, seconds)
            if self._has_log:
                access.info("%s", _line(scope, status, sent, seconds))


def route_of(scope: Scope) -> str:
    """The path of the route with its parameters as names: their values would be too many series."""
    path = getattr(scope.get("route"), "path", OTHER)
    return path.replace(":path}", "}") if isinstance(path, str) else OTHER


def _line(scope: Scope, status: int, sent: int, seconds: float) -> str:
    client = scope.get("client")
    query = scope["query_string"].decode("latin-1")
    return json.dumps(
        {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "info",
            "logger": access.name,
            "client": client[0] if client else None,
            "method": scope["method"],
            "url": (scope["path"] + (f"?{query}" if query else ""))[:URL_MAX],
            "status": status,
            "bytes": sent,
            "ms": round(seconds * 1000, 1),
        }
    )


def log_lines_alone() -> None:
    """Sends the lines of the access log to stderr as they are."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    access.handlers[:] = [handler]
    access.setLevel(logging.INFO)
    access.propagate = False
