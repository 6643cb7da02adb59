"""Decodes the topics of a consumer's subscription, which its JoinGroup carries.

To the broker a subscription is opaque bytes. It decodes them only to find out whether a group reads a topic.
"""

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

CONSUMER = "consumer"  # the type of protocol that these bytes belong to


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Returns the topics that a consumer subscribes to; None if the bytes are not a consumer's subscription."""
    try:
        (version,) = _INT16.unpack_from(subscription, 0)
        (count,) = _INT32.unpack_from(subscription, 2)
        if version < 0 or not 0 <= count <= len(subscription) // _INT16.size:
            return None
        topics, position = set(), 6
        for _ in range(count):
            (length,) = _INT16.unpack_from(subscription, position)
            position += _INT16.size
            name = subscription[position : position + length]
            if length < 0 or len(name) != length:
                return None
            topics.add(name.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
