"""The data directory: all logs of one broker.

directory    opens, creates, removes, checkpoints and closes the logs; the journal and the clean-shutdown marker
admission    which directories may be opened, and the lock on one
"""
