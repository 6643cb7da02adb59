"""The pages that describe the others: /v1/openapi.json for programs, /docs for people."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tailrace import __version__
from tailrace.gateway.http import docs_page
from tailrace.gateway.http.endpoints import Endpoint
from tailrace.gateway.http.openapi import description
from tailrace.gateway.http.replies import reply


def routes_about(endpoints: Sequence[Endpoint], *, has_token: bool) -> list[Route]:
    described = description(endpoints, __version__, has_token=has_token)
    page = docs_page.page(endpoints, __version__)

    async def openapi(_: Request) -> Response:
        return reply(described)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page, headers=docs_page.HEADERS)

    return [Route("/v1/openapi.json", openapi), Route("/docs", docs)]
