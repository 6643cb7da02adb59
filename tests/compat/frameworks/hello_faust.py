"""faust-streaming: `faust -A hello_faust worker`. Its group has the name of the app."""

import os

import faust


class User(faust.Record):
    name: str


class Greeting(faust.Record):
    text: str


app = faust.App(os.environ["GROUP"], broker=f"kafka://{os.environ['BROKER']}", store="memory://")
users = app.topic(os.environ["SOURCE"], value_type=User)
greetings = app.topic(os.environ["TARGET"], value_type=Greeting)


@app.agent(users, sink=[greetings])
async def greet(stream):
    async for user in stream:
        yield Greeting(text=f"Hello, {user.name}")


if __name__ == "__main__":
    app.main()
