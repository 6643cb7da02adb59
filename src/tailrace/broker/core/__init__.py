"""What all other folders of the broker use: topics and partitions, API handlers, delayed responses, error codes.

Read in this order:

    errors.py       exceptions, and Kafka's error codes for them
    delayed.py      responses that come later
    clients.py      what clients do over their open connections
    api.py          what an API handler is
    partition.py    one partition: its log and its waiting fetches
    patterns.py     regular expressions that clients send
    topics.py       topics and their names
    counters.py     counters for metrics, and the size of all logs
    losses.py       damaged ranges, recorded gaps and offline logs
    wall_clock.py   whether the wall clock is trusted
"""
