"""What the gateway does with a Kafka cluster: blocking calls of the private client (`tailrace.client`), in threads.

connection   connects to a cluster
threads      runs blocking calls beside the event loop
partitioner  the partition of a message, as Java's producer chooses it
batches      records as batches of a bounded size
sender       writes messages; concurrent requests share batches
reader       reads pages of messages; concurrent requests for one share it
tail         waits for messages; many requests share a few long polls
kafka        all of it for one cluster
"""
