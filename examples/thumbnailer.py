"""Makes a thumbnail of an image: a command for the workers of a queue.

    tailrace queue work thumbnails images --concurrency 20 -- python thumbnailer.py --output thumbnails

The message is an image in the format PPM (P6), and its key is the file's name. The thumbnail is written to a file of
that name in one step, so that doing it twice does no harm: a queue delivers a message at least once.

Exit code 0 accepts the message, and 65 rejects it: what is no image now will be none at the next attempt. Any other
error is tried again.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HEAD = re.compile(rb"P6\s+([1-9]\d{0,4})\s+([1-9]\d{0,4})\s+255\s")
WIDTH = 32
REJECT = 65


class Image(NamedTuple):
    width: int
    height: int
    pixels: bytes  # three for each


def parse(data: bytes) -> Image:
    """Raises ValueError for what is no image."""
    head = HEAD.match(data)
    if head is not None:
        image = Image(int(head[1]), int(head[2]), data[head.end() :])
        if len(image.pixels) == 3 * image.width * image.height:
            return image
    raise ValueError("this is no binary PPM with one byte for each colour")


def thumbnail(image: Image) -> bytes:
    step = max(1, image.width // WIDTH)
    rows = range(0, image.height, step)
    columns = range(0, image.width, step)
    pixels = b"".join(image.pixels[3 * (row * image.width + column) :][:3] for row in rows for column in columns)
    return b"P6 %d %d 255\n" % (len(columns), len(rows)) + pixels


def write(path: Path, data: bytes) -> None:
    """The file is there as a whole, or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--slow", metavar="NAME=SECONDS", default="=0", help="an image that takes so long")
    given = parser.parse_args()
    name = Path(os.environ["TAILRACE_KEY"]).name
    slow, _, seconds = given.slow.partition("=")
    if name == slow:
        time.sleep(float(seconds))
    try:
        image = parse(sys.stdin.buffer.read())
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return REJECT
    given.output.mkdir(exist_ok=True)
    write(given.output / name, thumbnail(image))
    return 0


if __name__ == "__main__":
    sys.exit(main())
