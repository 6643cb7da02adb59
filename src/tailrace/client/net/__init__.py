"""Connections to one broker.

tls         TLS contexts, one per set of options
stream      a socket, plain or TLS, that sends and receives frames until a deadline
sasl        PLAIN and SCRAM as conversations without I/O
connection  handshake, then requests and responses, possibly several in flight
pool        idle connections of a process, by address
"""
