"""The OpenAPI page describes what the gateway does, as schemathesis finds; /docs loads nothing from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.conftest import OURS
from gateways import TOKEN, RunningGateway

CHECKS = ("--checks", "all", "--exclude-checks", "positive_data_acceptance")  # some offsets are beyond every topic
ANSWER_S = 90  # a request for leases may wait for a minute
NO_ERRORS = """\
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501"]  # what another Kafka lacks
"""


def schemathesis(directory: Path, gateway: RunningGateway, *options: str) -> None:
    (directory / "schemathesis.toml").write_text(NO_ERRORS)
    page, patience = (
        f"{gateway.url}/v1/openapi.json",
        ("--request-timeout", str(ANSWER_S), "--max-response-time", str(ANSWER_S)),
    )
    command = [sys.executable, "-m", "schemathesis.cli", "run", page, *CHECKS, *patience, *options]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=540)
    shown = "\n".join(line[:500] for line in done.stdout.splitlines())
    assert done.returncode == 0, shown + done.stderr
    assert "10 selected / 10 total" in shown


@OURS
@pytest.mark.timeout(300)
def test_the_gateway_keeps_to_its_description_in_short(gateway: RunningGateway, tmp_path: Path) -> None:
    schemathesis(tmp_path, gateway, "--phases", "examples,fuzzing", "--max-examples", "10")


@pytest.mark.slow
@pytest.mark.timeout(560)
def test_the_gateway_keeps_to_its_description(gateway: RunningGateway, tmp_path: Path) -> None:
    schemathesis(tmp_path, gateway, "--phases", "examples,coverage,fuzzing", "--max-examples", "60")


@OURS
def test_all_routes_are_described(http: httpx.Client) -> None:
    described: dict[str, Any] = http.get("/v1/openapi.json").json()
    assert described["openapi"] == "3.1.0"
    assert {(method, path) for path, methods in described["paths"].items() for method in methods} == {
        ("post", "/v1/topics/{topic}"),
        ("get", "/v1/topics/{topic}/messages"),
        ("get", "/v1/topics/{topic}"),
        ("get", "/v1/topics"),
        ("get", "/v1/groups"),
        ("get", "/v1/groups/{group}"),
        *(("post", f"/v1/queues/{{group}}/{{topic}}/{verb}") for verb in ("lease", "ack", "nack", "extend")),
    }
    assert "security" not in described
    post = described["paths"]["/v1/topics/{topic}"]["post"]
    assert {one["name"] for one in post["parameters"]} == {"topic", "key", "partition", "Idempotency-Key"}
    assert {"200", "400", "401", "403", "404", "409", "413", "415", "422", "429", "503"} <= post["responses"].keys()


def test_a_token_is_described() -> None:
    with RunningGateway(token=TOKEN) as guarded:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{guarded.url}/v1/openapi.json", headers=headers).json()["security"] == [{"token": []}]
        assert httpx.get(f"{guarded.url}/docs").status_code == 200, "it says nothing that is secret"


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.targets += [value or "" for name, value in attrs if name in ("href", "src", "action", "data")]


@OURS
def test_the_page_for_people_loads_nothing_and_runs_nothing(http: httpx.Client) -> None:
    response = http.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    page = Links()
    page.feed(response.text)
    assert not page.tags & {"script", "img", "link", "iframe", "object", "form"}
    assert all(target.startswith("#") or target == "/v1/openapi.json" for target in page.targets)
    for target in page.targets:
        if target.startswith("#"):
            assert f"id='{target[1:]}'" in response.text
    assert not re.findall(r"https?://", response.text)
    assert "Idempotency-Key" in response.text
