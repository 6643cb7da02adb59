"""All supported APIs, by key. The handler of each is in the module of this folder that has its key and its name, which
is imported on the first request.
"""

from importlib import import_module

from tailrace.broker import apis
from tailrace.broker.core.api import Api
from tailrace.protocol.messages import SPOKEN, ApiKey
from tailrace.util.lazy import LazyMapping


def _api_of(key: int) -> Api:
    module = import_module(f"{apis.__name__}.k{key:02}_{ApiKey(key).name.lower()}")
    api: Api = module.API
    return api


APIS = LazyMapping(SPOKEN, _api_of)
