"""Child processes of the broker, which are its clients: the monitor and the gateway.

They connect to a private listener on loopback, which nothing else can use, with a token that is new at each start.

access      the token, and the file that has it
child       one supervised process: start, restart, metrics, end
http_port   the port of the gateway, which the broker binds
children    the private listener and all children
late_start  starts them once the broker serves
"""
