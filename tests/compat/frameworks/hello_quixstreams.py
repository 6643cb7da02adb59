"""quixstreams: `python hello_quixstreams.py`."""

import os

from quixstreams import Application


def main() -> None:
    app = Application(
        broker_address=os.environ["BROKER"], consumer_group=os.environ["GROUP"], auto_offset_reset="earliest"
    )
    users = app.topic(os.environ["SOURCE"], value_deserializer="json")
    greetings = app.topic(os.environ["TARGET"], value_serializer="json")

    stream = app.dataframe(users)
    stream = stream.apply(lambda user: {"text": f"Hello, {user['name']}"})
    stream.to_topic(greetings)
    app.run()


if __name__ == "__main__":
    main()
