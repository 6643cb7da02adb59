"""Reads for clients: fetch sessions, reads up to the limits, and fetches that wait for more.

Read in this order:

    sessions.py  fetch sessions (KIP-227)
    targets.py   the partitions that a Fetch asks for
    reads.py     one Fetch: reads, waits, responds
"""
