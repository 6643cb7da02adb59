"""Child processes of the broker, which are its clients: at present the monitor.

They connect to a private listener on loopback, which nothing else can use, with a token that is new at each start.

access      the token, and the file that has it
child       one supervised process: start, restart, metrics, end
children    the private listener and all children
late_start  starts them once the broker serves
"""
