"""FastStream on aiokafka: `faststream run hello_faststream_aiokafka:app`."""

import os

from faststream import FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel


class User(BaseModel):
    name: str


class Greeting(BaseModel):
    text: str


broker = KafkaBroker(os.environ["BROKER"])
app = FastStream(broker)


@broker.subscriber(os.environ["SOURCE"], group_id=os.environ["GROUP"], auto_offset_reset="earliest")
@broker.publisher(os.environ["TARGET"])
async def greet(user: User) -> Greeting:
    return Greeting(text=f"Hello, {user.name}")
