"""`tailrace alert`: what the monitor has raised, silences, and tests of delivery.

commands  list, test, silence
"""
