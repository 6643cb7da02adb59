"""Deliveries: a webhook against a real server, a real command, and what happens while a target fails."""

import json
import sys
import time
from pathlib import Path

import pytest
from waits import until
from webhooks import Hook, hook

from tailrace.facts.alerts import Alert, AlertRule, AlertState
from tailrace.monitor.alerts import deliveries
from tailrace.monitor.alerts.deliveries import Command, Deliveries, DeliveryFailed, Log, Webhook, targets_from
from tailrace.monitor.alerts.settings import settings_from

__all__ = ["hook"]


def alert(group: str = "billing", at: int = 1000, state: AlertState = AlertState.RAISED) -> Alert:
    return Alert(AlertRule.LOSS_AHEAD, group, "orders", 3, state, 1000, at, 60.0, 3600.0, "a <b> & c")


def test_a_webhook_gets_the_alert_as_json(hook: Hook) -> None:
    Webhook(f"{hook.url}/alerts?team=data", "json").deliver(alert())
    ((path, kind, body),) = hook.requests
    assert (path, kind) == ("/alerts?team=data", "application/json")
    assert body == {
        "id": "loss_ahead:billing:orders", "rule": "loss_ahead", "severity": "page", "group": "billing",
        "topic": "orders", "partition": 3, "state": "raised", "since": "1970-01-01T00:00:01.000Z", "value": 60.0,
        "threshold": 3600.0, "message": "a <b> & c", "silenced_until": None,
    }  # fmt: skip


def test_slack_gets_its_own_form_with_markup_escaped(hook: Hook) -> None:
    Webhook(hook.url, "slack").deliver(alert())
    assert hook.requests[0][2] == {"text": ":red_circle: *loss_ahead* raised: a &lt;b&gt; &amp; c"}


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 404, 500])
def test_redirects_are_not_followed_and_errors_are_failures(hook: Hook, status: int) -> None:
    hook.status = status
    with pytest.raises(DeliveryFailed, match=f"HTTP {status}"):
        Webhook(hook.url, "json").deliver(alert())
    assert [path for path, _, _ in hook.requests] == ["/"]


def test_a_server_that_drips_is_cut_off(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "ATTEMPT_S", 0.5)
    hook.drip_s = 0.05
    with pytest.raises(DeliveryFailed):
        Webhook(hook.url, "json").deliver(alert())


def test_nobody_listening_is_a_failure() -> None:
    with pytest.raises(DeliveryFailed, match="refused"):
        Webhook("http://127.0.0.1:1/", "json").deliver(alert())


def program(path: Path, code: str) -> list[str]:
    path.write_text(code)
    return [sys.executable, str(path)]


def test_a_command_reads_the_alert_from_stdin_without_a_shell(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read() + sys.argv[2])"
    Command([*program(tmp_path / "page.py", code), str(tmp_path / "out"), "$(id); *"]).deliver(alert())
    line, rest = (tmp_path / "out").read_text().split("\n")
    assert json.loads(line)["group"] == "billing"
    assert rest == "$(id); *"


def test_a_command_that_fails_or_is_missing_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailed, match="exit code 3"):
        Command(program(tmp_path / "page.py", "raise SystemExit(3)")).deliver(alert())
    with pytest.raises(DeliveryFailed, match="cannot be started"):
        Command([str(tmp_path / "missing")]).deliver(alert())


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "ATTEMPT_S", 1.0)
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "child.wait()"
    )
    with pytest.raises(DeliveryFailed, match="was killed"):
        Command(program(tmp_path / "page.py", code)).deliver(alert())
    if (tmp_path / "pid").exists() and (pid := (tmp_path / "pid").read_text()):
        until(lambda: not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text(), 20)


class Flaky:
    name = "webhook"

    def __init__(self) -> None:
        self.is_up = False
        self.got: list[Alert] = []

    def deliver(self, alert: Alert) -> None:
        if not self.is_up:
            raise DeliveryFailed("HTTP 503")
        self.got.append(alert)


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Flaky:
    monkeypatch.setattr(deliveries, "PAUSE_S", 0.01)
    monkeypatch.setattr(deliveries, "PAUSE_MAX_S", 0.05)
    return Flaky()


def collected(queue: Deliveries, count: int) -> list[Alert]:
    done: list[Alert] = []

    def are_enough() -> bool:
        done.extend(queue.collect())
        return len(done) >= count

    until(are_enough, 20)
    return done


def test_a_target_that_fails_gets_the_latest_state_once_it_works(flaky: Flaky) -> None:
    queue = Deliveries([Log(), flaky])
    first, later = alert(), alert(at=2000, state=AlertState.RESOLVED)
    queue.submit(first)
    until(lambda: queue.failing == {"webhook": "HTTP 503"}, 20)
    queue.submit(first)  # again: nothing
    queue.submit(later)
    assert queue.collect() == []
    flaky.is_up = True
    assert collected(queue, 1) == [later]
    assert flaky.got == [later]
    assert queue.failing == {}
    assert queue.outcomes["webhook", "delivered"] == 1
    assert queue.outcomes["webhook", "failed"] >= 1
    assert queue.outcomes["log", "delivered"] == 2
    queue.stop()


def test_what_is_withdrawn_is_not_delivered_any_more(flaky: Flaky) -> None:
    queue = Deliveries([flaky])
    queue.submit(alert("a"))
    queue.submit(alert("b"))
    queue.withdraw(alert("a").key)
    flaky.is_up = True
    assert [one.group for one in collected(queue, 1)] == ["b"]
    time.sleep(0.1)
    assert [one.group for one in flaky.got][-1] == "b"
    queue.stop()


def test_a_test_goes_to_one_target_or_to_all(flaky: Flaky) -> None:
    queue = Deliveries([Log(), flaky])
    assert queue.test("", 1) == {"log": "delivered", "webhook": "failed: HTTP 503"}
    assert queue.test("log", 1) == {"log": "delivered"}
    assert queue.test("command", 1) == {"command": "failed: not configured"}
    queue.stop()


def test_targets_come_from_the_configs() -> None:
    settings = settings_from(
        {
            "tailrace.alert.webhook.url": "https://example.org/hook",
            "tailrace.alert.webhook.format": "slack",
            "tailrace.alert.command": '["/bin/page", "-x"]',
        }
    )
    assert [target.name for target in targets_from(settings)] == ["log", "webhook", "command"]
    assert [target.name for target in targets_from(settings_from({}))] == ["log"]
