"""What the gateway knows of HTTP, and nothing of Kafka. Read in this order:

replies     responses of JSON
problems    errors as `application/problem+json`
parameters  parameters of a query: read, checked and described
endpoints   routes with their descriptions
openapi     the OpenAPI description of endpoints
docs_page   the same for people
bodies      bodies of requests, within limits
waits       requests that wait for something
guard       who may use the gateway: Host, Origin and token
records     counts requests, and logs them
app         routes, inside of what guards and records them
connection  one connection, with limits for slow and large requests
server      serves an app on listening sockets
"""
