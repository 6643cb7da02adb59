"""The ASGI app: routes, inside of what guards and records them."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.gateway.http.guard import Guard
from tailrace.gateway.http.problems import Problem, problem_of_status
from tailrace.gateway.http.records import Records
from tailrace.gateway.metrics import Metrics
from tailrace.util.http_hosts import AllowedHosts


def app_of(
    routes: Sequence[Route], metrics: Metrics, hosts: AllowedHosts, token: str | None, *, access_log: bool
) -> ASGIApp:
    router = Starlette(routes=list(routes), exception_handlers={HTTPException: _refused, Exception: _failed})
    router.router.redirect_slashes = False
    return Records(Guard(router, hosts, token), metrics, access_log=access_log)


async def _refused(_: Request, error: Exception) -> Response:
    """What the router raises: no such page, or not with this method."""
    assert isinstance(error, HTTPException)
    detail = "there is no such page; /docs lists them" if error.status_code == 404 else error.detail
    return problem_of_status(error.status_code, detail, error.headers).response()


async def _failed(_: Request, __: Exception) -> Response:
    """Starlette raises the error again, and `Records` logs it."""
    return Problem("internal-error", "the gateway's log has the error").response()
