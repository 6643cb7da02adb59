"""Reads the bodies of requests: bounded each, bounded together, and within a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from tailrace.gateway.http.problems import Problem

BODY_S = 30.0
TOGETHER = 16  # so many bodies of the largest size may be held at once


class Gone(Exception):
    """The client has closed the connection."""


class Bodies:
    """Used from the loop's thread alone."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Gives the body, whose memory counts until the end of the block. Raises Problem, and Gone."""
        length = request.headers.get("content-length")
        if length is not None and int(length) > self.bytes_max:  # the parser lets nothing but digits pass
            raise _too_large(self.bytes_max)
        parts: list[bytes] = []
        try:
            await self._receive(request, parts)
            yield parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self.held -= sum(map(len, parts))

    async def _receive(self, request: Request, parts: list[bytes]) -> None:
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                async for part in request.stream():
                    size += len(part)
                    if size > self.bytes_max:
                        raise _too_large(self.bytes_max)
                    if self.held + len(part) > TOGETHER * self.bytes_max:
                        raise Problem("too-many-requests", "too many bodies are held at once")
                    self.held += len(part)
                    parts.append(part)
        except TimeoutError:
            raise Problem("request-timeout", f"the body was not complete after {BODY_S:.0f} s") from None
        except ClientDisconnect:
            raise Gone from None


def _too_large(bytes_max: int) -> Problem:
    return Problem("too-large", f"a body may have {bytes_max} bytes (tailrace.http.body.max.bytes)")
