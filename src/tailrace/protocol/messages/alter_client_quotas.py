"""AlterClientQuotas (key 49): sets the quotas of users, clients and addresses."""

from tailrace.protocol.fields import array, boolean, float64, int16, int32, string
from tailrace.protocol.message import message, structure
from tailrace.protocol.messages.describe_client_quotas import EntityData


@structure
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@structure
class EntryData:
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@structure
class EntryResult:
    """Kafka's specification calls this EntryData, too."""

    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    entity: list[EntityData] = array(EntityData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[EntryResult] = array(EntryResult)
