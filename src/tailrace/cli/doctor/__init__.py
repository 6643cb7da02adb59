"""`tailrace doctor`.

command  runs the checks, and prints them
check    one check: state, text, advice
machine  limits, memory, clock, versions
disk     kind, speed, space and file system of the data directory
broker   whether a broker responds, how fast, and what its metrics say
"""
