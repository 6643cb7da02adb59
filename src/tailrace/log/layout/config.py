"""The settings of one log, with Kafka's defaults. Names are those of the topic configs, dots turned into
underscores.
"""

from typing import NamedTuple

_NO_LIMIT = (1 << 63) - 1


class LogConfig(NamedTuple):
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    log_append_time: bool = False  # message.timestamp.type=LogAppendTime
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _NO_LIMIT
    min_cleanable_dirty_ratio: float = 0.5
    flush_messages: int = _NO_LIMIT  # beside this, the flush queue flushes every log after a second, or 32 MB
    flush_ms: int = _NO_LIMIT
    retention_ms: int = 7 * 24 * 3600 * 1000  # -1: no limit
    retention_bytes: int = -1  # -1: no limit
