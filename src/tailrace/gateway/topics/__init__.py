"""Topics over HTTP: write messages, read them, and see which topics there are.

messages   the messages in a request: JSON, or the body itself
positions  where reading begins
schemas    what the OpenAPI page says of them
produce    POST /v1/topics/{topic}
consume    GET /v1/topics/{topic}/messages
catalog    GET /v1/topics and /v1/topics/{topic}
"""
