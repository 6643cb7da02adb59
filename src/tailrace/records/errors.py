"""Exceptions for bytes that are no valid record batch: one family, so that callers catch one class."""


class CorruptBatch(ValueError):
    """These bytes are not a whole, intact record batch of format v2. The message says which check failed."""


class TruncatedBatch(CorruptBatch):
    """The bytes end before the batch does: a torn write, or a truncated read."""


class CorruptRecords(CorruptBatch):
    """The batch is intact but the records inside it cannot be decoded."""


class TooLarge(CorruptRecords):
    """The records would take more memory, decompressed, than the caller allows."""
