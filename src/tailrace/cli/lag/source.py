"""What the monitor knows about a cluster, for `tailrace lag`; failures with exit codes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from tailrace.cli.common.connection import not_reachable, pairs
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.util.addresses import all_refuse

if TYPE_CHECKING:
    from tailrace.monitor.views import View

T = TypeVar("T")

PATIENCE = {"default.api.timeout.ms": "5000"}


@contextmanager
def view_of(bootstrap: str, client_config: list[str] | None) -> Iterator["View"]:
    """Gives the monitor's view of the cluster. Errors become failures of the verb."""
    from tailrace.monitor.views import View

    with opened(View, bootstrap, client_config) as view:
        yield view


@contextmanager
def opened(
    kind: "Callable[[dict[str, str]], AbstractContextManager[T]]",
    bootstrap: str,
    client_config: list[str] | None,
    *,
    waits: bool = False,
) -> Iterator[T]:
    """Gives what `kind` makes of the properties of a client. Errors become failures of the verb. Fails at once where
    every address refuses connections, unless it `waits` for a broker that is yet to start.
    """
    from tailrace.monitor.sources.connection import BadProperties, MonitorError, NotReachable, errors_as_monitor_errors

    properties = {"bootstrap.servers": bootstrap, **PATIENCE, **pairs(client_config, "--client-config")}
    try:
        with kind(properties) as view, errors_as_monitor_errors():
            if not waits and all_refuse(servers := properties["bootstrap.servers"]):
                raise Failure(not_reachable(servers, "Connection refused"), ExitCode.NOT_REACHABLE)
            yield view
    except BadProperties as error:
        raise Failure(f"the client cannot be set up: {error}", ExitCode.USAGE) from None
    except NotReachable as error:
        raise Failure(not_reachable(bootstrap, error.why), ExitCode.NOT_REACHABLE) from None
    except MonitorError as error:
        raise Failure(str(error)) from None


def require_group(group: str | None, known: bool, bootstrap: str) -> None:
    """Raises a failure if `group` was given and is not known."""
    if group is not None and not known:
        raise Failure(
            f"there is no group {group!r} at {bootstrap}\n  `tailrace group list` shows which there are",
            ExitCode.NOT_FOUND,
        )
