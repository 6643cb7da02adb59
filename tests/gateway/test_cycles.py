"""Nothing that a request leaves behind is part of a reference cycle: a body, what was parsed of it, and messages would
stay in memory until a collection of garbage, which may be many requests later.
"""

import gc
import secrets
import time
import types
from collections.abc import Callable

import httpx
import pytest
from gateway.conftest import OURS
from gateways import RunningGateway

import tailrace

PACKAGE = next(iter(tailrace.__path__))
JSON = {"content-type": "application/json"}
MANY = b'{"messages":[' + b",".join([b"{}"] * 20_000) + b"]}"
LONG = b'{"value": "' + b"x" * 1_200_000 + b'"}'

Call = Callable[[httpx.Client, str], httpx.Response]


def write(body: bytes, **headers: str) -> Call:
    fields = JSON | {name.replace("_", "-"): text for name, text in headers.items()}
    return lambda client, topic: client.post(f"/v1/topics/{topic}", content=body, headers=fields)


def read(path: str) -> Call:
    return lambda client, topic: client.get(f"/v1/topics/{topic}{path}")


CALLS: dict[str, tuple[Call, int]] = {
    "written": (write(b'{"value": "a"}'), 200),
    "many": (write(b'{"messages":[' + b",".join([b'{"value":1}'] * 9000) + b"]}"), 200),
    "too many": (write(MANY), 413),
    "too long": (write(LONG), 413),
    "too long with a key": (write(LONG, Idempotency_Key="long"), 413),
    "no JSON": (write(b"{" * 100_000), 400),
    "no message": (write(b"{}"), 400),
    "other type": (lambda client, topic: client.post(f"/v1/topics/{topic}", content=b"x" * 100_000), 415),
    "reused key": (
        lambda client, topic: write(b'{"value": "%d"}' % time.time_ns(), Idempotency_Key="reused")(client, topic),
        422,
    ),
    "keyed": (
        lambda client, topic: write(b'{"value": "a"}', Idempotency_Key=secrets.token_hex(8))(client, topic),
        200,
    ),
    "page": (read("/messages"), 200),
    "wait": (read("/messages?from=latest&wait_seconds=1"), 200),
    "out of range": (read("/messages?from=999999"), 416),
    "no partition": (read("/messages?partition=7"), 404),
    "no page": (read("/nothing"), 404),
    "topic": (read(""), 200),
    "groups": (lambda client, _: client.get("/v1/groups"), 200),
}


def is_ours(one: object) -> bool:
    if isinstance(one, types.FrameType):
        return one.f_code.co_filename.startswith(PACKAGE)
    if isinstance(one, types.TracebackType):
        return is_ours(one.tb_frame)
    if isinstance(one, bytes | bytearray | memoryview):
        return len(one) > 10_000
    return type(one).__module__.startswith("tailrace.")


@OURS
@pytest.mark.parametrize("name", CALLS)
def test_a_request_leaves_no_cycle(
    name: str, gateway: RunningGateway, http: httpx.Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    call, status = CALLS[name]
    call(http, topic)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(3):
            assert call(http, topic).status_code == status
        for _ in range(3):
            gateway.on_loop(lambda: None)
        gc.collect()
        found = [f"{type(one).__qualname__}: {one!r:.100}" for one in gc.garbage if is_ours(one)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found == []
