"""Every API that we speak, by its key. A module beside this one that is not listed here does not exist for clients."""

from tailrace.broker.apis import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k18_api_versions,
    k22_init_producer_id,
)
from tailrace.broker.requests import Api

_MODULES = (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k18_api_versions,
    k22_init_producer_id,
)

APIS: dict[int, Api] = {module.API.key: module.API for module in _MODULES}
