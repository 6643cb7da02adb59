"""What the gateway knows of HTTP, and nothing of Kafka.

connection  one connection, with limits for slow and large requests
server      serves an app on listening sockets
"""
