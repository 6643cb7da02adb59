"""Runs the acts that exist, one after the other. With `--picture FILE.svg` act one becomes the README's picture."""

import re
import sys
from pathlib import Path

from demo import act_one


def main() -> None:
    act_one.run()
    if sys.argv[1:2] == ["--picture"]:
        picture = act_one.console.export_svg(title="make demo")
        # The reader's own fixed-width font will do: a picture in a README should fetch nothing.
        Path(sys.argv[2]).write_text(re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", picture, flags=re.DOTALL))
    print("\nAct two, the Spark pipeline, comes with the broker: see CHANGELOG.md for what is there today.")


if __name__ == "__main__":
    main()
