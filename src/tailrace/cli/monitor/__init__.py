"""`tailrace monitor`: the monitor by itself, beside any Kafka."""
