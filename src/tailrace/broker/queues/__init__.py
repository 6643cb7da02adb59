"""Queues: share groups (KIP-932), whose members share partitions message by message."""
