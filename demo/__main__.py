"""Runs the acts, one after the other, and ends with 1 if one of them failed.

`--act one` runs one of them. With `--picture FILE.svg` the first act that is run becomes the README's picture.
"""

import argparse
import sys
from pathlib import Path

from demo import act_one, act_two, java
from demo.screen import Screen
from demo.spark_start import SparkStart, rehearse

ACTS = ("one", "two")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description="tailrace at work, in two acts.")
    parser.add_argument("--act", choices=ACTS, help="only this one")
    parser.add_argument("--picture", type=Path, help="a file to draw the first act to, as SVG")
    given = parser.parse_args()
    screen = Screen()
    is_good = play([given.act] if given.act else list(ACTS), screen)
    if given.picture:
        screen.save(given.picture)
    if not is_good:
        print("\nThis is not how it should end: see above what is red.", file=sys.stderr)
    return 0 if is_good else 1


def play(names: list[str], screen: Screen) -> bool:
    """Whether all of these acts went well; ends with the first that did not."""
    spark = SparkStart()

    def intermission() -> None:
        if "two" in names and java.is_installed():
            screen.say("Spark starts in the background, for act two.", "dim")
            spark.begin(rehearse)

    acts = {"one": lambda: act_one.run(screen, intermission), "two": lambda: act_two.run(screen, spark)}
    try:
        return all(acts[name]() for name in names)
    finally:
        spark.close()


if __name__ == "__main__":
    sys.exit(main())
