"""Runs the acts, one after the other, and ends with 1 if one of them failed.

`--act one` runs one of them. With `--picture FILE.svg` the first act that is run becomes the README's picture.
"""

import argparse
import sys
from pathlib import Path

from demo import act_one, act_two
from demo.screen import Screen

ACTS = {"one": act_one, "two": act_two}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description="tailrace at work, in two acts.")
    parser.add_argument("--act", choices=ACTS, help="only this one")
    parser.add_argument("--picture", type=Path, help="a file to draw the first act to, as SVG")
    given = parser.parse_args()
    screen = Screen()
    acts = [ACTS[given.act]] if given.act else list(ACTS.values())
    is_good = all(act.run(screen) for act in acts)
    if given.picture:
        screen.save(given.picture)
    if not is_good:
        print("\nThis is not how it should end: see above what is red.", file=sys.stderr)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
