"""Runs the acts that exist, one after the other, and ends with 1 if one of them failed.

With `--picture FILE.svg` act one becomes the README's picture.
"""

import sys
from pathlib import Path

from demo import act_one
from demo.screen import Screen


def main() -> int:
    screen = Screen()
    is_good = act_one.run(screen)
    if sys.argv[1:2] == ["--picture"]:
        screen.save(Path(sys.argv[2]))
    if not is_good:
        print("\nThis is not how it should end: see above what is red.", file=sys.stderr)
        return 1
    print("\nAct two, the Spark pipeline, is to come: CHANGELOG.md says what is there today.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
