"""`tailrace monitor`: the monitor by itself, beside any Kafka.

command  the options, as `--help` shows them
"""
