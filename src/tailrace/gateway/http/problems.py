"""Errors as `application/problem+json` (RFC 9457): one table of what can go wrong."""

import http
from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from tailrace.gateway.http.replies import reply

MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    status: int
    title: str


KINDS: dict[str, Kind] = {
    "bad-request": Kind(400, "The request cannot be understood"),
    "unauthorized": Kind(401, "The request has no valid token"),
    "forbidden": Kind(403, "The request is not allowed"),
    "not-found": Kind(404, "There is no such page"),
    "topic-not-found": Kind(404, "There is no such topic or partition"),
    "group-not-found": Kind(404, "There is no such group"),
    "queue-not-found": Kind(404, "There is no such queue"),
    "method-not-allowed": Kind(405, "The page does not support this method"),
    "request-timeout": Kind(408, "The request did not arrive in time"),
    "in-progress": Kind(409, "A request with this Idempotency-Key is being handled"),
    "lease-expired": Kind(409, "None of the leases is valid any more"),
    "too-large": Kind(413, "The request, or a message in it, is too large"),
    "unsupported-media-type": Kind(415, "The type of the body is not supported"),
    "offset-out-of-range": Kind(416, "The partition does not have this offset"),
    "key-reused": Kind(422, "The Idempotency-Key belongs to another request"),
    "too-many-requests": Kind(429, "Too many requests at once"),
    "internal-error": Kind(500, "The gateway has failed"),
    "not-supported": Kind(501, "The cluster does not support this"),
    "unavailable": Kind(503, "The cluster cannot be reached, or cannot do this now"),
}
_BY_STATUS = {404: "not-found", 405: "method-not-allowed"}
_RETRY = ("too-many-requests", "in-progress")
RETRY_AFTER_S = 1


class Problem(Exception):
    """An error for the client. `further` are members of the response beside those that every problem has."""

    def __init__(
        self, code: str, detail: str, *, headers: Mapping[str, str] | None = None, further: Mapping[str, object] = {}
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = {**({"Retry-After": str(RETRY_AFTER_S)} if code in _RETRY else {}), **(headers or {})}
        self.further = further

    @property
    def status(self) -> int:
        return KINDS[self.code].status

    def response(self) -> Response:
        kind = KINDS[self.code]
        body = {"type": type_of(self.code), "title": kind.title, "status": kind.status, "detail": self.detail}
        return reply({**body, **self.further}, kind.status, self.headers, MEDIA_TYPE)


def type_of(code: str) -> str:
    """The `type` of a problem."""
    return f"/problems/{code}"


def problem_of_status(status: int, detail: str, headers: Mapping[str, str] | None) -> Problem:
    """Returns the problem for a status that the router has chosen."""
    code = _BY_STATUS.get(status, "bad-request")
    return Problem(code, detail or http.HTTPStatus(status).phrase, headers=headers)
