"""Who may use the gateway: known hosts, no pages of another origin, and clients with the token."""

from collections.abc import Iterator

import httpx
import pytest
from gateways import TOKEN, RunningGateway

PAGE = "/v1/openapi.json"


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with RunningGateway(configs={"tailrace.http.hosts": "gateway.example"}) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningGateway]:
    with RunningGateway(token=TOKEN) as gateway:
        yield gateway


def get(gateway: RunningGateway, path: str = PAGE, **headers: str) -> httpx.Response:
    return httpx.get(f"{gateway.url}{path}", headers={name.replace("_", "-"): text for name, text in headers.items()})


def problem_of(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == response.status_code
    assert body["title"]
    assert body["detail"]
    return response.status_code, body["type"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9999", "gateway.example", "GATEWAY.example:80", "[::1]"])
def test_known_hosts_are_served(gateway: RunningGateway, host: str) -> None:
    assert get(gateway, Host=host).status_code == 200


@pytest.mark.parametrize("path", [PAGE, "/healthz", "/metrics", "/docs", "/nothing"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.1.2.3", ""])
def test_a_rebinding_host_is_refused_on_every_page(gateway: RunningGateway, path: str, host: str) -> None:
    assert problem_of(get(gateway, path, Host=host)) == (403, "/problems/forbidden")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost:3000"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_another_origin_is_refused(gateway: RunningGateway, headers: dict[str, str], method: str) -> None:
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    response = httpx.request(method, f"{gateway.url}/v1/topics/orders", headers=sent)
    assert problem_of(response) == (403, "/problems/forbidden")
    assert "access-control-allow-origin" not in response.headers


def test_a_page_of_the_gateways_own_origin_is_served(gateway: RunningGateway) -> None:
    for site in ("same-origin", "none"):
        assert get(gateway, Origin=gateway.url, Sec_Fetch_Site=site).status_code == 200


def test_a_preflight_is_allowed_nothing(gateway: RunningGateway) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    response = httpx.options(f"{gateway.url}/v1/topics/orders", headers=asked)
    assert response.status_code == 403
    response = httpx.options(f"{gateway.url}{PAGE}")
    assert response.status_code == 405
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": f"Bearer {TOKEN}x"},
     {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Authorization": TOKEN}],
)  # fmt: skip
def test_without_the_token_no_page_under_v1_is_served(guarded: RunningGateway, headers: dict[str, str]) -> None:
    for path in (PAGE, "/v1", "/v1/", "/v1/nothing", "//v1/topics"):
        response = get(guarded, path, **headers)
        if path.startswith("//"):
            assert response.status_code == 404
            continue
        assert problem_of(response) == (401, "/problems/unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"


def test_with_the_token_pages_are_served_and_health_needs_none(guarded: RunningGateway) -> None:
    assert get(guarded, Authorization=f"Bearer {TOKEN}").status_code == 200
    assert get(guarded, Authorization=f"bearer  {TOKEN}").status_code == 200
    assert get(guarded, "/healthz").status_code == 200


def test_a_token_with_other_characters_is_refused_and_breaks_nothing(guarded: RunningGateway) -> None:
    response = httpx.get(f"{guarded.url}{PAGE}", headers=[(b"Authorization", "Bearer ÿþ".encode("latin-1"))])
    assert response.status_code == 401
