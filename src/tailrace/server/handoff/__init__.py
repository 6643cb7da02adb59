"""Owns the hand-off: a helper process serves catch-up consumers, so that they slow no others down. In reading order:

handoff         which connections are handed off, and how they are taken back
helper_process  the broker's side: starts the helper process, passes it connections, replaces it if it dies
messages        the messages between the two, and the limits of a hand-off
worker          the helper process itself
"""
