"""`tailrace queue`: share groups as queues: created, shown, worked on, and their dead letters sent again.

commands      the verbs create, list, show, peek, purge and set
here          brokers that answer, and what the verbs ask them first
requests      requests about share groups by our private client, and the clients behind `work` and `redrive`
creation      the plan of `create`
view          the output of `list` and `show`
reading       ranges of partitions, read to their ends
peek          `peek`: the next messages, and their state
purge         the plan of `purge`
work          `work`: runs a command for each message
shift         its loop: acquires messages, and acknowledges them
worker        one run of the command
redrive       `redrive`: sends dead letters again
redriving     its plan, and its transactions
dead_letters  a dead letter, and where it came from
"""
