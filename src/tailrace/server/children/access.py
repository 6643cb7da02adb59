"""What opens the private listener: its port and a token, in a file that only the broker's user can read.

Children get both on stdin. The file is for processes that the broker has not started, such as `tailrace` run by the
same user. It is new at each start, and removed at a clean stop.
"""

import json
import os
import secrets
from contextlib import suppress
from typing import NamedTuple

FILE = "internal.json"
TOKEN_BYTES = 32


class Access(NamedTuple):
    port: int
    token: str

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def write(directory: str, access: Access) -> None:
    """Replaces the file. Raises OSError."""
    path = os.path.join(directory, FILE)
    draft = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(draft)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(access.encode())
    os.replace(draft, path)


def remove(directory: str) -> None:
    with suppress(OSError):
        os.unlink(os.path.join(directory, FILE))
