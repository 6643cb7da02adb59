"""Every API that we speak, by its key. Its handler is in the module beside this one that has its key and its name,
which is imported when it is first asked for.
"""

from importlib import import_module

from tailrace.broker import apis
from tailrace.broker.core.api import Api
from tailrace.protocol.messages import SPOKEN, ApiKey
from tailrace.util.lazy import Lazily


def _api_of(key: int) -> Api:
    module = import_module(f"{apis.__name__}.k{key:02}_{ApiKey(key).name.lower()}")
    api: Api = module.API
    return api


APIS = Lazily(SPOKEN, _api_of)
