"""`tailrace queue`: share groups as queues: created, shown, worked on, and their dead letters sent again.

commands   the verbs create, list, show, peek, purge and set
requests   requests about share groups, made by our private client, and the consumer behind `work`
view       the output of list and show
creation   the plan of `create`
peek       `peek`: the next messages, and their state
work       `work`: runs a command for each message
worker     one run of that command
redrive    `redrive`: sends dead letters again
"""
