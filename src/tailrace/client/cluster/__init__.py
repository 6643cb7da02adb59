"""The cluster as one process sees it: metadata, leaders, coordinators, and retries.

metadata      brokers, topics and partition leaders, as values
retry         backoff until a deadline
cluster       cached metadata and connections; sends a request to any broker or to a leader
coordinators  finds the coordinators of groups and transactions, and sends requests to them
routing       one request about many partitions, split by leader and repeated until all have responded
"""
