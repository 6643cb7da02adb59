"""CRC-32C (Castagnoli), the checksum of record batches and of the files beside them.

`crc32c(data, initial)` takes any buffer and continues from `initial`, so that a long stream can be checked in
parts.
"""

from fastcrc.crc32 import iscsi as crc32c

__all__ = ["crc32c"]
