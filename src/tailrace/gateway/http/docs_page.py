"""The page /docs: the OpenAPI description for people, as HTML without scripts and without anything from elsewhere."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from typing import Any

from tailrace.gateway.http.endpoints import Endpoint
from tailrace.gateway.http.openapi import operation_id
from tailrace.gateway.http.problems import KINDS

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark }
h2 { margin-top: 2.5rem; border-top: 1px solid #8888; padding-top: 1rem }
code, pre { font: 14px/1.5 ui-monospace, monospace }
pre { padding: .7rem; border: 1px solid #8888; overflow-x: auto }
table { border-collapse: collapse }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0 }
"""  # noqa: E501
_HASH = b64encode(sha256(STYLE.encode()).digest()).decode()
HEADERS = {"Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'"}


def page(endpoints: Sequence[Endpoint], version: str) -> str:
    return "".join(_parts(endpoints, version))


def _parts(endpoints: Sequence[Endpoint], version: str) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>tailrace over HTTP</title>'
    yield f"<style>{STYLE}</style></head><body><h1>tailrace {escape(version)} over HTTP</h1>"
    yield "<p>Topics of a Kafka cluster. For programs: <a href='/v1/openapi.json'>/v1/openapi.json</a>. Errors are "
    yield "<code>application/problem+json</code>. With a token, each request under <code>/v1</code> has the header "
    yield "<code>Authorization: Bearer TOKEN</code>.</p><ul>"
    for one in endpoints:
        yield f"<li><a href='#{operation_id(one)}'><code>{one.method} {escape(one.path)}</code></a> "
        yield escape(one.summary)
    yield "</ul>"
    for one in endpoints:
        yield from _endpoint(one)
    yield "</body></html>\n"


def _endpoint(endpoint: Endpoint) -> Iterator[str]:
    yield f"<h2 id='{operation_id(endpoint)}'>{escape(endpoint.summary)}</h2>"
    yield f"<p><code>{endpoint.method} {escape(endpoint.path)}</code></p><p>{escape(endpoint.text)}</p>"
    rows = [("path", one) for one in endpoint.path_parameters] + [("query", one) for one in endpoint.parameters]
    rows += [("header", one) for one in endpoint.headers]
    if rows:
        yield "<table><tr><th>parameter<th>in<th>meaning<th>values</tr>"
        for place, one in rows:
            yield f"<tr><td><code>{escape(one.name)}</code><td>{place}<td>{escape(one.text)}"
            yield f"<td>{escape(_values(one.schema))}</tr>"
        yield "</table>"
    for media_type, content in endpoint.bodies.items():
        yield f"<p>Body: <code>{escape(media_type)}</code></p>"
        if content.example is not None:
            yield f"<pre>{escape(json.dumps(content.example, indent=2, ensure_ascii=False))}</pre>"
    yield f"<p>Response:</p><pre>{escape(_outline(endpoint.answer))}</pre><p>Errors: "
    yield ", ".join(f"{KINDS[code].status} {code}" for code in endpoint.problems)
    yield "</p>"


def _values(schema: Any) -> str:
    words = [", ".join(schema["enum"])] if "enum" in schema else []
    if "minimum" in schema:
        words.append(f"{schema['minimum']} to {schema['maximum']}")
    if "default" in schema and schema["default"] != "":
        words.append(f"default: {schema['default']}")
    return "; ".join(words)


def _outline(schema: Any, indent: str = "") -> str:
    """The shape of a response, with types in the place of values."""
    kind = schema.get("type", "any")
    if kind == "object" and "properties" in schema:
        inside = indent + "  "
        members = (f"{inside}{name}: {_outline(one, inside)}" for name, one in schema["properties"].items())
        return "{\n" + "\n".join(members) + f"\n{indent}}}"
    if kind == "array" and "items" in schema:
        return f"[{_outline(schema['items'], indent)}]"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
