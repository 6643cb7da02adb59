"""Responses of JSON: compact, in one line that ends."""

import json
from collections.abc import Mapping

from starlette.responses import Response

MEDIA_TYPE = "application/json"


def reply(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = MEDIA_TYPE
) -> Response:
    return Response(rendered(value), status, headers, media_type)


def rendered(value: object) -> bytes:
    """Lone surrogates, as in the name of a header that is not UTF-8, become escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{text}\n".encode("utf-8", "backslashreplace")
