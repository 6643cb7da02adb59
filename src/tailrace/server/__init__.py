"""The shell around the broker: sockets, threads, the clock, signals and helper processes. In reading order:

settings        what a broker is started with: the file, and the flags over it
config_file     TOML or Kafka's properties, and the line of each key
threads         a few threads for work that waits for a disk or a client
counters        counts and times what the server does
net/            sockets: clients, their requests, their responses
handoff/        catch-up consumers, served by a helper process
flusher/        when a flush begins, and what waits for the disk
children/       monitor and gateway as supervised child processes, on a private listener
metrics         the figures in Prometheus' text format
preload         imports what a start has left out, soon after it
node            the broker, its threads and its sockets put together: start, run, stop
http            the pages /metrics, /healthz and /readyz
run             runs a node in this process until a signal: what `tailrace serve` does
history_reader  the former path of `handoff.worker`, for one release
"""
