"""Prints what `tailrace serve --check` found: the settings that would count, and those without effect."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.server.settings import Review


def print_review(review: "Review", *, as_json: bool) -> None:
    if as_json:
        _print_json({"valid": True, **_as_object(review)})
        return
    settings = review.settings
    print(f"data     {settings.data}")
    for listen in settings.listen:
        told = listen.advertised
        said = f", advertised as {_address(told.host, told.port)}" if told else ""
        print(f"listen   {_address(listen.host, listen.port)}{said}")
    print(f"metrics  {_address(*settings.metrics) if settings.metrics else 'off'}")
    for name, text in settings.configs.items():
        if name not in review.ignored:
            print(f"{name} = {text}  ({review.places[name]})")
    for name, reason in review.ignored.items():
        print(f"no effect: {name} ({review.places[name]}): {reason}")
    for warning in review.warnings:
        print(f"warning: {warning}")


def print_refusal(error: str) -> None:
    _print_json({"valid": False, "error": error})


def _as_object(review: "Review") -> dict[str, object]:
    settings = review.settings
    return {
        "data": settings.data,
        "listen": [
            {
                "address": _address(one.host, one.port),
                "advertised": _address(one.advertised.host, one.advertised.port) if one.advertised else None,
            }
            for one in settings.listen
        ],
        "metrics": _address(*settings.metrics) if settings.metrics else None,
        "configs": {
            name: {"value": text, "from": review.places[name]}
            for name, text in settings.configs.items()
            if name not in review.ignored
        },
        "ignored": {name: {"from": review.places[name], "reason": why} for name, why in review.ignored.items()},
        "warnings": review.warnings,
    }


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _print_json(value: dict[str, object]) -> None:
    import json  # no start of a broker needs it

    print(json.dumps(value, indent=2))
