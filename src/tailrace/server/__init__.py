"""The shell around the broker: sockets, threads, clock and signals. In reading order:

frames        bytes from a socket, cut into requests
sending       answers to a socket: bytes, and slices of files that are never copied through this process
chunks        sending much, and being felt by nobody else
lending       readers of history, lent to another process, which is `history_reader`
connection    one client: its requests start as they arrive, and are answered in order
listener      accepting clients, and where they are told to connect
threads       a few threads for what waits for a disk
node          all of it put together: start, run, stop
loading       what a start has left out, soon after it
metrics       what is counted, in Prometheus' words; `http` serves it
"""
