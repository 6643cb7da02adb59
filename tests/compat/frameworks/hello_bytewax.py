"""bytewax: `python -m bytewax.run hello_bytewax:flow`, with `-r DIRECTORY` to go on where it was.

It belongs to no group: every partition is assigned by itself, and offsets are kept in that directory.
"""

import json
import os

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSourceMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow


def greet(message: KafkaSourceMessage) -> KafkaSinkMessage:
    user = json.loads(message.value)
    return KafkaSinkMessage(message.key, json.dumps({"text": f"Hello, {user['name']}"}).encode())


# `tail=False`: it ends where the topic does, with all of it in the recovery directory. Stopped by a signal it would do
# some of it again.
brokers = [os.environ["BROKER"]]
flow = Dataflow("hello")
users = kop.input("users", flow, brokers=brokers, topics=[os.environ["SOURCE"]], tail=False)
op.inspect("errors", users.errs).then(op.raises, "raise")
greetings = op.map("greet", users.oks, greet)
kop.output("greetings", greetings, brokers=brokers, topic=os.environ["TARGET"])
