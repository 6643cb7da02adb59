"""DescribeClientQuotas (key 48): the quotas of users, clients and addresses."""

from tailrace.protocol.fields import array, boolean, float64, int8, int16, int32, string
from tailrace.protocol.message import message, structure


@structure
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(null="0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@structure
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(null="0+")  # None: the default of its type


@structure
class ValueData:
    key: str = string()
    value: float = float64()


@structure
class EntryData:
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    entries: list[EntryData] | None = array(EntryData, null="0+")
