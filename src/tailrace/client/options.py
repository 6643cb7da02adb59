"""The settings of a client: a value that can be compared, hashed, and pickled from a driver to its workers.

`ClientOptions.from_properties` makes it from properties as Kafka's clients have them; `properties` has the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

Address = tuple[str, int]


class Isolation(IntEnum):
    """Up to where records are visible, as on the wire."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class Tls:
    """If `ca_file` and `ca_text` are None, the system's authorities are trusted."""

    ca_file: str | None = None
    ca_text: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: str  # PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Defaults are Kafka's, except for a larger fetch size: we read one partition at a time."""

    bootstrap: tuple[Address, ...]
    client_id: str = "tailrace"
    request_timeout_s: float = 30.0  # of one request, without the time that the broker may keep it
    retry_timeout_s: float = 60.0  # how long connection and leader errors are retried
    connect_timeout_s: float = 10.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    metadata_max_age_s: float = 300.0
    tls: Tls | None = None
    sasl: Sasl | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    max_partition_fetch_bytes: int = 4 << 20
    check_crcs: bool = True

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "ClientOptions":
        """Raises BadOption for a property that is unknown, or has an invalid value."""
        from tailrace.client.properties import options_from

        return options_from(properties)
