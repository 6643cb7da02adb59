"""`make demo`: tailrace at work, in two acts. Each act is a module; each prints what it does and why it matters.

act_one          a broker that loses nothing: killed under load, counted, a flipped bit found
clients, ledger  its producer and consumer, and the count of every event
group_scene      a consumer group that loses a member; `worker` is one member
queue_scene      a queue whose workers are killed, with a message that fails each time
act_two          one pipeline, live and over history
generator        the shop that sends events; `events` has what each window must come to
spark_start      Spark for act two, started while act one plays
pipelines        the pipelines; `live_scene` runs them live, `replay_scene` over history
broker_process   `tailrace serve` as a process
commands         verbs, shown with what they print
screen           what the audience sees
java             Java for Spark
"""
