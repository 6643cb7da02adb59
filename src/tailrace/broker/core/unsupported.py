"""Kafka features that this broker lacks, and the clients that ask for them: each is logged once."""

import logging

from tailrace.broker.core.api import Call
from tailrace.broker.core.errors import in_short

logger = logging.getLogger("tailrace.broker.core")

TRANSACTIONS = "transactions (transactional.id)", "remove transactional.id; idempotent producers need none"
LOGGED_MAX = 1_000  # clients choose their names, and would fill the log


class UnsupportedFeatures:
    def __init__(self) -> None:
        self._logged: set[tuple[str, str, str]] = set()

    def refuse(self, feature: str, advice: str, call: Call) -> str:
        """The error message for a client. Logs it unless it was logged for this client id and address before."""
        message = f"tailrace does not support {feature} yet: {advice}"
        who = (feature, call.client_id or "", call.client_host)
        if who not in self._logged and len(self._logged) < LOGGED_MAX:
            self._logged.add(who)
            client_id = in_short(call.client_id or "")
            logger.warning("client %r at %s was refused: %s", client_id, call.client_host.lstrip("/"), message)
        return message
