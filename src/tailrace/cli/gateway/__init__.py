"""`tailrace gateway`: runs the gateway by itself.

command  the options
"""
