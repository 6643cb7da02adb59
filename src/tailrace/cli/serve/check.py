"""Prints what `tailrace serve --check` found: the settings that would count, and those without effect."""

from typing import TYPE_CHECKING

from tailrace.util.host_port import shown

if TYPE_CHECKING:
    from tailrace.server.settings import Review, Settings


def print_review(review: "Review", *, as_json: bool) -> None:
    if as_json:
        _print_json({"valid": True, **_as_object(review)})
        return
    settings = review.settings
    print(f"data     {settings.data}")
    for listen in settings.listen:
        told = listen.advertised
        said = f", advertised as {shown(told.host, told.port)}" if told else ""
        print(f"listen   {shown(listen.host, listen.port)}{said}")
    print(f"metrics  {shown(*settings.metrics) if settings.metrics else 'off'}")
    print(f"http     {_http(settings)}")
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
                "address": shown(one.host, one.port),
                "advertised": shown(one.advertised.host, one.advertised.port) if one.advertised else None,
            }
            for one in settings.listen
        ],
        "metrics": shown(*settings.metrics) if settings.metrics else None,
        "http": shown(*settings.http.address) if settings.http else None,
        "configs": {
            name: {"value": text, "from": review.places[name]}
            for name, text in settings.configs.items()
            if name not in review.ignored
        },
        "ignored": {name: {"from": review.places[name], "reason": why} for name, why in review.ignored.items()},
        "warnings": review.warnings,
    }


def _http(settings: "Settings") -> str:
    if settings.http is None:
        return "off"
    return shown(*settings.http.address) + (", with a token" if settings.http.token else "")


def _print_json(value: dict[str, object]) -> None:
    import json  # no start of a broker needs it

    print(json.dumps(value, indent=2))
