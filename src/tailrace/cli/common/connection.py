"""Connections of the verbs to brokers, ours or any Kafka: options, clients, and errors with exit codes.

librdkafka, which does the work, logs a lot and gives up on nothing by itself: its logs are dropped, its last error is
kept for the message of a failure, and its error codes become a `Failure` with an exit code. It is imported on first
use.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from errno import ECONNREFUSED
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tailrace.cli.common import output
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.util.addresses import all_refuse

if TYPE_CHECKING:
    from logging import Logger

    from tailrace.cli.common.client import AdminClient, ClusterMetadata, Consumer, KafkaError, Producer

DEFAULT = "127.0.0.1:9092"
REQUEST_SECONDS = 15.0

_PATIENCE_SECONDS = 5.0
_REFUSAL_SECONDS = 0.2  # after that, the verb looks whether all addresses refuse connections
_SILENT_SECONDS = 1.0  # after that, a terminal shows what the verb waits for
_COMPLETION_SECONDS = 1.0

Bootstrap = Annotated[
    str,
    typer.Option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="TAILRACE_BOOTSTRAP",
        help="The broker to ask first; several with commas.",
    ),
]
ClientConfig = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--client-config",
        metavar="KEY=VALUE",
        help="A property of librdkafka, such as security.protocol=SSL. May be repeated.",
    ),
]

T = TypeVar("T")


class Connection:
    """The brokers of --bootstrap: makes clients for them, and keeps the last error that the clients reported."""

    def __init__(self, bootstrap: str, client_config: list[str] | None = None) -> None:
        self.bootstrap = bootstrap
        self.is_away = False  # no broker could be reached when a client last tried
        self._properties = pairs(client_config, "--client-config")
        self._trouble: str | None = None
        self._has_answered = False

    def admin(self) -> "AdminClient":
        from tailrace.cli.common.client import AdminClient

        # Not the id of a consumer: our broker takes who fetches a partition for one that has read what it commits.
        return self._make(AdminClient, {"client.id": "tailrace-admin"})

    def consumer(self, properties: dict[str, Any]) -> "Consumer":
        from tailrace.cli.common.client import Consumer

        return self._make(Consumer, properties)

    def producer(self, properties: dict[str, Any]) -> "Producer":
        from tailrace.cli.common.client import Producer

        return self._make(Producer, properties)

    def metadata(self, client: Any) -> "ClusterMetadata":
        """All topics and brokers. The first question to a broker: waits some seconds for an answer, unless every
        address refuses connections and none has answered before.
        """
        from tailrace.cli.common.client import KafkaException

        waited = 0.0
        while True:
            until = next((end for end in (_REFUSAL_SECONDS, _SILENT_SECONDS) if end > waited), _PATIENCE_SECONDS)
            try:
                return self._list_topics(client, until - waited)
            except KafkaException as error:
                if not _is_silence(error.args[0]):
                    raise self.failure(error.args[0]) from None
                client.poll(0)  # hands over what went wrong
                if until == _PATIENCE_SECONDS or self._is_refused():
                    raise self.failure(error.args[0]) from None
            waited = until
            if waited == _SILENT_SECONDS and sys.stderr.isatty():
                output.warn(f"waiting for a broker at {self.bootstrap} …")

    def result(self, future: Any, doing: str = "") -> Any:
        """Returns the result of an admin request. `doing` describes it in a failure."""
        from tailrace.cli.common.client import KafkaException

        try:
            return future.result()
        except KafkaException as error:
            raise self.failure(error.args[0], doing) from None

    def failure(self, error: "KafkaError", doing: str = "") -> Failure:
        if _is_silence(error):
            return Failure(self.not_reachable(), ExitCode.NOT_REACHABLE)
        code = _exit_code(error)
        reason = reason_of(error)
        return Failure(f"{doing}: {reason}" if doing else reason, code)

    def not_reachable(self) -> str:
        return not_reachable(self.bootstrap, self._trouble)

    @property
    def properties(self) -> dict[str, str]:
        """Those of --bootstrap and --client-config."""
        return {"bootstrap.servers": self.bootstrap, **self._properties}

    @property
    def trouble(self) -> str:
        return self._trouble or "it does not answer"

    def _list_topics(self, client: Any, seconds: float) -> "ClusterMetadata":
        answer: ClusterMetadata = client.list_topics(timeout=seconds)
        self.is_away = False
        self._has_answered = True
        return answer

    def _is_refused(self) -> bool:
        """Whether nothing listens at any address, and nothing did before: then no waiting helps. Asked only once a
        connection was refused, since a name that is slow to resolve would hold this up, too.
        """
        servers = self._properties.get("bootstrap.servers") or self.bootstrap
        refused = os.strerror(ECONNREFUSED) in (self._trouble or "")
        return refused and not self._has_answered and all_refuse(servers)

    def _make(self, kind: Callable[..., T], properties: dict[str, Any]) -> T:
        from tailrace.cli.common.client import KafkaException

        settings = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "tailrace",
            "error_cb": self._note,
            **properties,
            **self._properties,
        }
        try:
            return kind(settings, logger=_silence())
        except (KafkaException, TypeError, ValueError) as error:
            said = error.args[0]
            text = said if isinstance(said, str) else said.str()
            raise Failure(f"the client cannot be set up: {text}", ExitCode.USAGE) from None

    def _note(self, error: "KafkaError") -> None:
        from tailrace.cli.common.client import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.is_away = True
        else:
            self._trouble = reason_of(error)


def not_reachable(bootstrap: str, why: str | None) -> str:
    return (
        f"no broker answers at {bootstrap}{f' ({why})' if why else ''}\n"
        "  `tailrace serve` starts one here; -b HOST:PORT or TAILRACE_BOOTSTRAP names another"
    )


def pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """Returns the KEY=VALUE pairs of an option, which may be repeated."""
    found: dict[str, str] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise Failure(f"{option} takes KEY=VALUE, not {text!r}", ExitCode.USAGE)
        found[name.strip()] = value.strip()
    return found


def reason_of(error: "KafkaError") -> str:
    """Returns librdkafka's message, without the parts that only its authors understand."""
    text = str(error.str() or error.name())
    text = re.sub(r" \(after \d+ms in state \w+.*\)$", "", text)
    text = re.sub(r"^(?:\w+://)?\S+/(?:bootstrap|\d+): ", "", text)
    text = re.sub(r"^Connect to \S+ failed: ", "", text)
    return re.sub(r"^(?:Broker|Local): ", "", text)


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics there are, for completion in a shell; none where no broker answers at once."""
    return _completions(context, incomplete, lambda admin: admin.list_topics(timeout=_COMPLETION_SECONDS).topics)


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    def names(admin: "AdminClient") -> list[str]:
        listed = admin.list_consumer_groups(request_timeout=_COMPLETION_SECONDS).result(_COMPLETION_SECONDS)
        return [group.group_id for group in listed.valid]

    return _completions(context, incomplete, names)


def complete_queues(context: typer.Context, incomplete: str) -> list[str]:
    """The share groups there are."""
    from tailrace.cli.common.admin_requests import AdminRequests

    limits = [
        f"{name}={round(_COMPLETION_SECONDS * 1000)}" for name in ("request.timeout.ms", "default.api.timeout.ms")
    ]
    given = [*(context.params.get("client_config") or ()), *limits]
    try:
        with AdminRequests(Connection(context.params.get("bootstrap") or DEFAULT, given)) as requests:
            return [group.name for group in requests.share_groups() if group.name.startswith(incomplete)]
    except Failure:
        return []


def _completions(context: typer.Context, incomplete: str, names: "Callable[[AdminClient], Iterable[str]]") -> list[str]:
    try:
        connection = Connection(context.params.get("bootstrap") or DEFAULT, context.params.get("client_config"))
        found = [name for name in names(connection.admin()) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell that completes has no place for errors
        return []
    return sorted(name for name in found if incomplete or not name.startswith("__"))


def until(condition: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> bool:
    """Asks again and again, for some seconds, until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_silence(error: "KafkaError") -> bool:
    from tailrace.cli.common.client import KafkaError

    return error.code() in (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._AUTHENTICATION,
    )


def _exit_code(error: "KafkaError") -> ExitCode:
    from tailrace.cli.common.client import KafkaError

    if error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.GROUP_ID_NOT_FOUND,
    ):
        return ExitCode.NOT_FOUND
    if error.code() == KafkaError._INVALID_ARG:
        return ExitCode.USAGE
    refusals = (
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REQUEST,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_DELETION_DISABLED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.GROUP_MAX_SIZE_REACHED,
    )
    return ExitCode.REFUSED if error.code() in refusals else ExitCode.FAILED


def _silence() -> "Logger":
    import logging

    logger = logging.getLogger("tailrace.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
