"""Records that a share group gives up, written to its dead-letter topic, each of them once.

letters.py  a dead letter as a record; pure
jobs.py     makes them, and finds those that were written before
writers.py  writes them: one writer for each group
"""
