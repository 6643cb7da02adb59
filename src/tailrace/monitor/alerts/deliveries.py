"""Delivers alerts to the log, a webhook and a command: each target in a thread of its own, ten seconds for an attempt.

A target that fails gets the alert again, after a pause that doubles up to five minutes; meanwhile a later change of the
same alert takes the place of the earlier one. The webhook follows no redirects: 2xx is a delivery, all else a failure.
"""

import json
import logging
import os
import signal
import subprocess
import threading
from collections import Counter, OrderedDict
from contextlib import suppress
from typing import Protocol

from tailrace.facts.alerts import Alert, AlertKey, AlertRule, AlertState, as_json
from tailrace.monitor.alerts.settings import Settings
from tailrace.monitor.figures.report import rfc3339

logger = logging.getLogger("tailrace.monitor")

ATTEMPT_S = 10.0
PAUSE_S = 5.0
PAUSE_MAX_S = 300.0
WAITING_MAX = 1000  # alerts for one target; the oldest are dropped, and counted
LOG, WEBHOOK, COMMAND = "log", "webhook", "command"
DELIVERED, FAILED, DROPPED = "delivered", "failed", "dropped"
_ERROR_CHARACTERS_MAX = 300


class DeliveryFailed(Exception):
    """The target has not taken the alert."""


class Target(Protocol):
    name: str

    def deliver(self, alert: Alert) -> None:
        """Raises DeliveryFailed."""


def fields_of(alert: Alert) -> dict[str, object]:
    return as_json(alert, rfc3339)


class Log:
    name = LOG

    def deliver(self, alert: Alert) -> None:
        level = logging.WARNING if alert.is_raised else logging.INFO
        logger.log(level, "alert %s %s: %s", alert.rule, alert.state, alert.message)


class Webhook:
    name = WEBHOOK

    def __init__(self, url: str, form: str) -> None:
        self._url = url
        self._form = form

    def deliver(self, alert: Alert) -> None:
        body = slack(alert) if self._form == "slack" else fields_of(alert)
        _post(self._url, json.dumps(body, ensure_ascii=False).encode())


def slack(alert: Alert) -> dict[str, object]:
    """What Slack's incoming webhooks take, and those of others that imitate them."""
    mark = ":red_circle:" if alert.is_raised else ":large_green_circle:"
    text = alert.message.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"{mark} *{alert.rule}* {alert.state}: {text}"}


def _post(url: str, body: bytes) -> None:
    import http.client  # imported late: it takes megabytes, and most monitors have no webhook
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=ATTEMPT_S)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    deadline = threading.Timer(ATTEMPT_S, _cut_off, (connection,))  # the timeout above is for each read
    deadline.daemon = True
    deadline.start()
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "User-Agent": "tailrace-monitor"})
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DeliveryFailed(f"{parts.hostname}: {str(error) or type(error).__name__}") from None
    finally:
        deadline.cancel()
        connection.close()
    if not 200 <= status < 300:
        raise DeliveryFailed(f"{parts.hostname} answers with HTTP {status}")


def _cut_off(connection: "http.client.HTTPConnection") -> None:  # type: ignore[name-defined]  # noqa: F821
    import socket

    if (sock := connection.sock) is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class Command:
    """Starts a command without a shell, with the alert as JSON on its standard input."""

    name = COMMAND

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments

    def deliver(self, alert: Alert) -> None:
        program = self._arguments[0]
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # ours is the pipe to the broker
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that it can be killed with all that it has started
            )
        except (OSError, ValueError) as error:
            raise DeliveryFailed(f"{program} cannot be started: {error}") from None
        try:
            process.communicate(json.dumps(fields_of(alert), ensure_ascii=False).encode() + b"\n", ATTEMPT_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise DeliveryFailed(f"{program} has not ended within {ATTEMPT_S:.0f} s, and was killed") from None
        if process.returncode:
            raise DeliveryFailed(f"{program} ended with exit code {process.returncode}")


def targets_from(settings: Settings) -> list[Target]:
    """The targets that `tailrace.alert.webhook.*` and `tailrace.alert.command` name, and the log."""
    targets: list[Target] = [Log()]
    if settings.webhook_url:
        targets.append(Webhook(settings.webhook_url, settings.webhook_format))
    if settings.command:
        targets.append(Command(list(settings.command)))
    return targets


class Deliveries:
    """Takes alerts and tells, by `collect`, which of them all targets have."""

    def __init__(self, targets: list[Target]) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()  # by target and outcome
        self._queues = [_Queue(target, self.outcomes) for target in targets]
        self._by_name = {target.name: target for target in targets}
        self._under_way: dict[AlertKey, Alert] = {}

    @property
    def failing(self) -> dict[str, str]:
        """The last error of each target whose last attempt has failed."""
        return {one.name: one.error for one in self._queues if one.error is not None}

    def submit(self, alert: Alert) -> None:
        """Queues the alert for all targets. Again with the same alert, it does nothing."""
        before = self._under_way.get(alert.key)
        if before is not None and (before.at, before.state) == (alert.at, alert.state):
            return
        self._under_way[alert.key] = alert
        for queue in self._queues:
            queue.put(alert)

    def has(self, key: AlertKey) -> bool:
        """Whether a target has still to get a change of this alert."""
        return key in self._under_way

    def withdraw(self, key: AlertKey) -> None:
        """Forgets an alert that is no longer to be delivered."""
        if self._under_way.pop(key, None) is not None:
            for queue in self._queues:
                queue.remove(key)

    def collect(self) -> list[Alert]:
        """Returns the alerts that have been delivered to all targets since the last call."""
        done = [alert for key, alert in self._under_way.items() if not any(one.owes(key) for one in self._queues)]
        for alert in done:
            del self._under_way[alert.key]
        return done

    def test(self, to: str, now_ms: int) -> dict[str, str]:
        """Delivers a test alert to one target, or to all, and returns what became of it."""
        alert = Alert(
            AlertRule.CANNOT_DELIVER, "", "", None, AlertState.RESOLVED, now_ms, now_ms, 0, 0,
            "this is a test of the delivery of alerts: nothing is wrong.",
        )  # fmt: skip
        if to and to not in self._by_name:
            return {to: f"{FAILED}: not configured"}
        return {name: _attempt(target, alert) for name, target in self._by_name.items() if to in ("", name)}

    def stop(self) -> None:
        for queue in self._queues:
            queue.stop()


def _attempt(target: Target, alert: Alert) -> str:
    try:
        target.deliver(alert)
    except DeliveryFailed as error:
        return f"{FAILED}: {error}"
    return DELIVERED


class _Queue:
    """What one target has still to get, by alert, and the thread that delivers it. The thread starts with the first."""

    def __init__(self, target: Target, outcomes: Counter[tuple[str, str]]) -> None:
        self.name = target.name
        self.error: str | None = None
        self._target = target
        self._outcomes = outcomes
        self._waiting: OrderedDict[AlertKey, Alert] = OrderedDict()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def put(self, alert: Alert) -> None:
        with self._changed:
            self._waiting.pop(alert.key, None)
            self._waiting[alert.key] = alert
            if len(self._waiting) > WAITING_MAX:
                self._waiting.popitem(last=False)
                self._outcomes[self.name, DROPPED] += 1
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"alerts-{self.name}", daemon=True)
                self._thread.start()

    def remove(self, key: AlertKey) -> None:
        with self._changed:
            self._waiting.pop(key, None)

    def owes(self, key: AlertKey) -> bool:
        with self._changed:
            return key in self._waiting

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    def _run(self) -> None:
        pause_s = PAUSE_S
        while (alert := self._next()) is not None:
            outcome = self._deliver(alert)
            if outcome == DELIVERED:
                pause_s = PAUSE_S
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped, pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _next(self) -> Alert | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_stopped)
            return None if self._is_stopped else next(iter(self._waiting.values()))

    def _deliver(self, alert: Alert) -> str:
        try:
            self._target.deliver(alert)
        except DeliveryFailed as error:
            said = str(error)[:_ERROR_CHARACTERS_MAX]
            if self.error is None:
                logger.error("cannot deliver alerts to the %s: %s; trying again", self.name, said)
            self.error = said
            self._outcomes[self.name, FAILED] += 1
            return FAILED
        self.error = None
        self._outcomes[self.name, DELIVERED] += 1
        with self._changed:
            if self._waiting.get(alert.key) is alert:
                del self._waiting[alert.key]
        return DELIVERED
