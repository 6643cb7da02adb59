"""Formats of the topics in which the broker, its monitor and its gateway keep what they know: JSON with a version.

Pure, and shared by the broker, its child processes and the command line, which read these topics as any Kafka client
would.

    document     JSON values that carry a version
    losses       `__tailrace_losses`: records that were deleted, and the groups that had not read them
    segments     `__tailrace_segments`: the segments of each partition, and what decides when they go
    lag          `__tailrace_lag`: how far each group is behind, as the monitor sees it
    alerts       `__tailrace_alerts`: alerts, silences and tests of delivery
    positions    `__tailrace_positions`: the committed offsets of groups, as they were
    idempotency  `__tailrace_idempotency`: requests to the gateway that had an Idempotency-Key, and their responses
"""
