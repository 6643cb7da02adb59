"""A message broker that speaks Kafka's protocol. The log is the only storage; everything else is a reader of it."""

__version__ = "0.1.0"
