"""Decides who may use the gateway, before any route sees the request.

Host            has to be known, or the address that the client has connected to: no DNS rebinding
Origin,         under /v1, if a browser sends them, have to be the gateway's own: no page of another origin can write,
Sec-Fetch-Site  or keep requests waiting. There is no CORS
Authorization   under /v1, has to have the token, where there is one
"""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.gateway.http.problems import Problem
from tailrace.util.http_hosts import AllowedHosts, refusal

API = "/v1"
_OWN_SITE = ("same-origin", "none")  # none: the user has typed the address


class Guard:
    def __init__(self, app: ASGIApp, hosts: AllowedHosts, token: str | None) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token.encode() if token is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else None
        server = scope.get("server")
        if not self._hosts.allows(host, str(server[0]) if server else ""):
            raise Problem("forbidden", refusal(host))
        if scope["path"] == API or scope["path"].startswith(f"{API}/"):
            _check_origin(headers, host or "")
            self._check_token(headers)

    def _check_token(self, headers: Headers) -> None:
        if self._token is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared whole, so that the time it takes says nothing about the token.
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), self._token):
            raise Problem(
                "unauthorized", "send the header Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"}
            )


def _check_origin(headers: Headers, host: str) -> None:
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN_SITE:
        raise Problem("forbidden", f"a web page of another origin has sent it (Sec-Fetch-Site: {site[:20]})")
    for origin in headers.getlist("origin"):
        if origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            raise Problem("forbidden", f"a web page of another origin has sent it (Origin: {origin[:200]})")
