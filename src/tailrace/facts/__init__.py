"""Formats of the topics in which the broker and its monitor publish what they know: values as JSON, with a version.

Pure, and shared by the broker, the monitor and the command line, which read these topics as any Kafka client would.

    document   JSON values that carry a version
    losses     `__tailrace_losses`: records that were deleted, and the groups that had not read them
    segments   `__tailrace_segments`: the segments of each partition, and what decides when they go
    lag        `__tailrace_lag`: how far each group is behind, as the monitor sees it
    alerts     `__tailrace_alerts`: alerts, silences and tests of delivery
    positions  `__tailrace_positions`: the committed offsets of groups, as they were
"""
