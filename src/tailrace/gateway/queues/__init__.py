"""Work queues over HTTP: messages are leased, and acknowledged one by one. A queue is a share group and a topic.

lease_ids  the names of leases: opaque, and valid for one delivery
requests   the bodies of requests, and what the OpenAPI page says of them
opening    what is done once for a queue: its group, and which broker it is on
queue      one queue: a member of the group in a thread of its own, and the leases that it has given
queues     all of them: opened when they are asked for, and closed when they are idle
verbs      POST /v1/queues/{group}/{topic}/lease, ack, nack and extend
"""
