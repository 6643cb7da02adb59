"""Endpoints: each is a route and its description, from which the OpenAPI page is made."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tailrace.gateway.http import parameters
from tailrace.gateway.http.parameters import Parameter, Schema
from tailrace.gateway.http.problems import Problem
from tailrace.util import tracebacks

Handler = Callable[[Request, dict[str, Any]], Awaitable[Response]]  # gets the values of the parameters


class Content(NamedTuple):
    """A body that a request may have."""

    schema: Schema
    example: object = None


class Endpoint(NamedTuple):
    method: str
    path: str
    handler: Handler
    summary: str
    text: str
    answer: Schema  # of a response with status 200
    path_parameters: Sequence[Parameter] = ()
    parameters: Sequence[Parameter] = ()
    headers: Sequence[Parameter] = ()
    bodies: Mapping[str, Content] = {}
    problems: Sequence[str] = ()
    tag: str = ""


def routes_of(endpoints: Sequence[Endpoint], problem_of: Callable[[Exception], Problem | None]) -> list[Route]:
    """Returns one route for each path, so that the response to a wrong method names all right ones. `problem_of` says
    what clients are told about an error; None for one that is not expected.
    """
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        Route(_with_slashes(path), _dispatcher(methods, problem_of), methods=list(methods))
        for path, methods in by_path.items()
    ]


def _with_slashes(path: str) -> str:
    """The names of groups may have slashes."""
    return path.replace("{group}", "{group:path}")


def _dispatcher(
    methods: Mapping[str, Endpoint], problem_of: Callable[[Exception], Problem | None]
) -> Callable[[Request], Awaitable[Response]]:
    async def dispatch(request: Request) -> Response:
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        try:
            for parameter in endpoint.path_parameters:
                _check(parameter, request.path_params[parameter.name])
            return await endpoint.handler(request, parameters.read(request, endpoint.parameters))
        except Exception as error:
            response = _response_to(error, problem_of)
            if response is None:
                raise
            tracebacks.forget(error)
            return response

    return dispatch


def _response_to(error: Exception, problem_of: Callable[[Exception], Problem | None]) -> Response | None:
    problem = error if isinstance(error, Problem) else problem_of(error)
    return None if problem is None else problem.response()


def _check(parameter: Parameter, given: str) -> None:
    try:
        parameter.parse(given)
    except ValueError as error:
        raise Problem("bad-request", f"the {parameter.name} cannot be {given[:100]!r}: {error}") from None
