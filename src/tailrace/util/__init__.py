"""Small helpers without a subject of their own. The bottom layer: every package may import them.

times      parsing of points in time, as users write them (`-2h`, `yesterday 10:00`, ISO 8601)
shutdown   SIGINT and SIGTERM as an event
children   command line and environment of child processes that run our own modules
lazy       a table whose values are imported on first use
"""
