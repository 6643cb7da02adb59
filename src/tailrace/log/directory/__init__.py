"""The data directory: all logs of one broker.

directory            opens, creates, removes, checkpoints and closes the logs; the journal
admission            which directories may be opened, and the lock on one
markers              the files that mark a directory: its format, and a clean shutdown
offset_checkpoints   recovery points, start offsets and cleaner offsets of all logs
removal              the jobs that remove logs
"""
