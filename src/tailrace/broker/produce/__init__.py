"""Appends for clients: checks batches, recompresses them where the topic says so, and responds when they are on disk.

Read in this order:

    validation.py     checks of a batch, by its header
    key_checks.py     records without a key, for compacted topics
    appends.py        the append, and the responses that wait for it
    recompression.py  batches in another codec than the topic's, and the queues behind them
"""
