"""Every API that we speak, by its key. A module beside this one that is not listed here does not exist for clients."""

from tailrace.broker.apis import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k33_alter_configs,
    k37_create_partitions,
    k44_incremental_alter_configs,
    k60_describe_cluster,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
from tailrace.broker.requests import Api

_MODULES = (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k33_alter_configs,
    k37_create_partitions,
    k44_incremental_alter_configs,
    k60_describe_cluster,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)

APIS: dict[int, Api] = {module.API.key: module.API for module in _MODULES}
