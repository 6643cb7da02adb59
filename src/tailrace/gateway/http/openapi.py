"""The OpenAPI description of endpoints, made from what reads their requests."""

from collections.abc import Iterator, Sequence
from typing import Any

from tailrace.gateway.http.endpoints import Endpoint
from tailrace.gateway.http.parameters import Parameter
from tailrace.gateway.http.problems import KINDS, MEDIA_TYPE, type_of

EVERYWHERE = ("unauthorized", "forbidden", "internal-error")
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "An error, as RFC 9457 describes it.",
    "properties": {
        "type": {"type": "string", "enum": [type_of(code) for code in KINDS]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}


def description(endpoints: Sequence[Endpoint], version: str, *, has_token: bool) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "tailrace",
            "version": version,
            "description": "Topics and queues of a Kafka cluster over HTTP. Errors are application/problem+json.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return {**found, "security": [{"token": []}]} if has_token else found


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "description": endpoint.text,
        "tags": [endpoint.tag],
        "parameters": list(_parameters(endpoint)),
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": endpoint.answer}}},
            **_problems(endpoint),
        },
    }
    if endpoint.bodies:
        operation["requestBody"] = {
            "required": True,
            "content": {
                media_type: {
                    "schema": content.schema,
                    **({} if content.example is None else {"example": content.example}),
                }
                for media_type, content in endpoint.bodies.items()
            },
        }
    return operation


def operation_id(endpoint: Endpoint) -> str:
    """Such as `post_topics_topic`."""
    words = endpoint.path.removeprefix("/v1/").replace("{", "").replace("}", "").split("/")
    return "_".join([endpoint.method.lower(), *words])


def _parameters(endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for place, parameters in (
        ("path", endpoint.path_parameters),
        ("query", endpoint.parameters),
        ("header", endpoint.headers),
    ):
        yield from (_parameter(one, place) for one in parameters)


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path",
        "description": parameter.text,
        "schema": parameter.schema,
    }


def _problems(endpoint: Endpoint) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in sorted((*endpoint.problems, *EVERYWHERE), key=lambda code: KINDS[code].status):
        by_status.setdefault(KINDS[code].status, []).append(code)
    return {
        str(status): {
            "description": "; ".join(f"{KINDS[code].title} ({code})" for code in codes),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, codes in by_status.items()
    }
