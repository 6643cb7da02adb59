"""The topic id of a log, in Kafka's `partition.metadata` format: a line with the version, one with the id.

    version: 0
    topic_id: <22 characters: the 16 bytes in URL-safe base64, without padding>

A topic that is deleted and created again under the same name gets another id, so a log of the old topic can be
recognized.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from tailrace.log.disk.interface import Files, join, read_whole
from tailrace.log.files.checkpoints import CorruptCheckpoint
from tailrace.log.layout.names import PARTITION_METADATA

ID_BYTES = 16

_VERSION_LINE = b"version: 0"
_ID_KEY = b"topic_id: "
_ID_LENGTH = 22


def encode_topic_id(topic_id: bytes) -> bytes:
    assert len(topic_id) == ID_BYTES
    return b"%s\n%s%s\n" % (_VERSION_LINE, _ID_KEY, urlsafe_b64encode(topic_id)[:_ID_LENGTH])


def decode_topic_id(data: bytes) -> bytes:
    """Decodes a `partition.metadata` file. Raises CorruptCheckpoint if it is damaged or of another version."""
    lines = data.split(b"\n")
    if len(lines) < 2 or lines[0].strip() != _VERSION_LINE or not lines[1].startswith(_ID_KEY):
        raise CorruptCheckpoint(f"expected a version and a topic id, found {data[:60]!r}")
    text = lines[1][len(_ID_KEY) :].strip()
    try:
        topic_id = urlsafe_b64decode(text + b"==")
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None
    if len(text) != _ID_LENGTH or urlsafe_b64encode(topic_id)[:_ID_LENGTH] != text:
        raise CorruptCheckpoint(f"{text!r} is not a topic id")
    return topic_id


def read_topic_id(files: Files, directory: str) -> bytes:
    """Returns the topic id of the log in this directory. Raises OSError, and CorruptCheckpoint if there is none."""
    return decode_topic_id(read_whole(files, join(directory, PARTITION_METADATA)) or b"")
