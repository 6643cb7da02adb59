"""What the gateway does with a Kafka cluster: blocking calls of the private client (`tailrace.client`), in threads.

connection  connects to a cluster
threads     runs blocking calls beside the event loop
"""
