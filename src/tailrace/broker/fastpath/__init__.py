"""The fast path: Produce and Fetch without decoding requests or encoding responses.

A client's requests resemble each other. What they have in common is learned from one request and kept as a template.
Requests that match no template, and all unusual ones, take the slow path (`apis`, `produce`, `fetch`). Without this
folder the broker is slower, and still right.

Read in this order:

    templates.py  the templates of one connection
    produce.py    appends of matching Produce requests, alone or in runs
    fetch.py      reads for matching Fetch requests, and ranges of the log for the hand-off
"""
