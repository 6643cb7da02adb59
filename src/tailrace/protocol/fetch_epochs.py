"""How the requests of a fetch session are numbered (KIP-227); what a session is, `broker/fetch/sessions` says."""

NO_SESSION = 0  # the id of none
INITIAL_EPOCH = 0  # of a request that begins one
FINAL_EPOCH = -1  # … ends one, or has none
EPOCH_MAX = (1 << 31) - 1


def epoch_after(epoch: int) -> int:
    return epoch + 1 if epoch < EPOCH_MAX else INITIAL_EPOCH + 1
