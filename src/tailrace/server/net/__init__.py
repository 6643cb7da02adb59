"""Owns the sockets: accepts clients, reads requests, starts them, and sends the responses in order. In reading order:

listener     accepts clients on an address
private      accepts only clients that have a token: the broker's own child processes
admission    limits connections: in total, by address, per second
connection   one client: starts its requests as they arrive, and answers them in order
frames       splits the bytes from a socket into requests
pending      the requests in flight on a connection, and their deadlines
outbox       sends responses: bytes, and slices of files that are not copied through this process
thread_send  sends large slices, and data that are not in memory, in a thread
chunks       the chunks of a response; sends large ones in small steps, so that other clients are not held up
ready        connections whose responses have become ready
limits       bounds the memory of requests that have not arrived whole
throttle     delays a client that has exceeded its quotas
busy_poll    polls for the next request of a client that sends it right after a response, without going to sleep
handoff      the hand-off of catch-up consumers as connections see it
"""
