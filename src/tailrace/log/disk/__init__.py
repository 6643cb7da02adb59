"""The disk: the only folder that calls the operating system for files.

interface      protocols `Files`, `File`, `Lock`, and helpers for paths and whole files; tests implement them, too
os_files       the operating system's files, with a bound on open descriptors
system_calls   synced and direct writes, syncs, preallocation: calls that differ by system
page_cache     which bytes are in the page cache; read-ahead
locks          the lock on a data directory
"""
