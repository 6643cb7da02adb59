"""Reads the bodies of requests: bounded each, bounded together, and within a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from tailrace.gateway.http.problems import Problem

BODY_S = 30.0
TOGETHER = 8  # so many bodies of the largest size may be held at once


class Gone(Exception):
    """The client has closed the connection."""


class Bodies:
    """Used from the loop's thread alone."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Gives the body, for which memory is reserved until the end of the block. Raises Problem, and Gone."""
        reserved = _announced(request, self.bytes_max)
        if self.held + reserved > TOGETHER * self.bytes_max:
            raise Problem("too-many-requests", "too many bodies are being received")
        self.held += reserved
        try:
            yield await self._received(request)
        finally:
            self.held -= reserved

    async def _received(self, request: Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                async for part in request.stream():
                    size += len(part)
                    if size > self.bytes_max:
                        raise _too_large(self.bytes_max)
                    parts.append(part)
        except TimeoutError:
            raise Problem("request-timeout", f"the body was not complete after {BODY_S:.0f} s") from None
        except ClientDisconnect:
            raise Gone from None
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _announced(request: Request, bytes_max: int) -> int:
    """The length of the body, the largest one if the head does not say it. Raises Problem for one that is longer."""
    length = request.headers.get("content-length")
    if length is None:
        return bytes_max
    if int(length) > bytes_max:  # the parser lets nothing but digits pass
        raise _too_large(bytes_max)
    return int(length)


def _too_large(bytes_max: int) -> Problem:
    return Problem("too-large", f"a body may have {bytes_max} bytes (tailrace.http.body.max.bytes)")
