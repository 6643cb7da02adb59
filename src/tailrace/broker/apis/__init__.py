"""One module for each Kafka API key, `k<key>_<name>`: the listing of this folder is the list of supported APIs.

Each module has a handler and an `API`, and its head says which versions it serves and what differs from Kafka. To add
an API: its messages and an entry of `SPOKEN` in `protocol/messages`, and a module here with an `API`.

    registry.py  all APIs by their key; imports a module on its first request
"""
