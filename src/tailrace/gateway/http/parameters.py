"""Parameters of a query: what they may be, in one place for reading them and for the OpenAPI page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from tailrace.gateway.http.problems import Problem

Schema = Mapping[str, Any]
_INTEGER_LENGTH_MAX = 20


class Parameter(NamedTuple):
    name: str
    text: str
    schema: Schema
    parse: Callable[[str], Any]  # raises ValueError with the reason
    default: Any = None


def integer(name: str, text: str, least: int, most: int, default: int | None = None) -> Parameter:
    def parse(given: str) -> int:
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < _INTEGER_LENGTH_MAX):
            raise ValueError("it is no whole number")
        if not least <= int(given) <= most:
            raise ValueError(f"it is a number from {least} to {most}")
        return int(given)

    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    if default is not None:
        schema["default"] = default
    return Parameter(name, text, schema, parse, default)


def choice(name: str, text: str, values: Sequence[str], default: str) -> Parameter:
    def parse(given: str) -> str:
        if given not in values:
            raise ValueError(f"it is one of {', '.join(values)}")
        return given

    schema = {"type": "string", "enum": list(values), "default": default}
    return Parameter(name, text, schema, parse, default)


def string(
    name: str,
    text: str,
    length_max: int,
    default: str | None = None,
    *,
    length_min: int = 0,
    examples: Sequence[str] = (),
) -> Parameter:
    def parse(given: str) -> str:
        if not length_min <= len(given) <= length_max:
            raise ValueError(f"it has {length_min} to {length_max} characters")
        return given

    schema: dict[str, Any] = {"type": "string", "maxLength": length_max}
    if length_min:
        schema["minLength"] = length_min
    if default is not None:
        schema["default"] = default
    if examples:
        schema["examples"] = list(examples)
    return Parameter(name, text, schema, parse, default)


def read(request: Request, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Returns the value of each parameter, by its name. Raises Problem for one that is invalid, unknown or repeated."""
    known = {one.name: one for one in parameters}
    values = {one.name: one.default for one in parameters}
    seen: set[str] = set()
    for name, given in request.query_params.multi_items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise Problem("bad-request", f"there is no parameter {name[:100]!r}; there are: {names}")
        if name in seen:
            raise Problem("bad-request", f"the parameter {name} is there twice")
        seen.add(name)
        try:
            values[name] = known[name].parse(given)
        except ValueError as error:
            raise Problem("bad-request", f"the parameter {name} cannot be {given[:100]!r}: {error}") from None
    return values
