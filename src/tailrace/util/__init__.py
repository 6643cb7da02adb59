"""Small general helpers. The bottom layer: every package may import them.

addresses      whether nothing listens at bootstrap addresses, so that waiting makes no sense
host_port      HOST:PORT as users write it
broker_child   a child process of the broker: what it learns on stdin, and what it writes to stdout
times          parses points in time as users write them (`-2h`, `yesterday 10:00`, ISO 8601)
http_hosts     which `Host` an HTTP request may name
shutdown       SIGINT and SIGTERM as an event
sizes          bytes as people read them
children       command line and environment of child processes that run our own modules
logging        log lines, for people and for machines
histogram      counts of durations, for Prometheus
json_messages  a message as a JSON object
lazy           a table whose values are imported on first use
tracebacks     errors without their tracebacks
tokens         a bearer token in a file
"""
