"""Commands, as the audience could type them: each is shown with what it says."""

import subprocess
import sys
import time
from pathlib import Path

from demo.broker_process import BrokerProcess
from demo.screen import Screen


def start(broker: BrokerProcess, screen: Screen) -> None:
    """Until it serves."""
    screen.say(f"$ {broker.shown_command}", "dim")
    broker.start()
    while not broker.is_ready():
        time.sleep(0.01)
    screen.say(f"It serves after {broker.start_seconds:.2f} s.")


def tailrace(screen: Screen, directory: Path, *arguments: str, last: int | None = None) -> int:
    """Runs a verb, shows what it prints, or so many of its last lines, and returns what it ended with."""
    shown = f"tailrace {' '.join(arguments)}" + (f" | tail -n {last}" if last else "")
    screen.say(f"\n$ {shown}", "dim")
    command = [sys.executable, "-m", "tailrace", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
    lines = (done.stdout + done.stderr).rstrip().splitlines()
    screen.say("\n".join(lines[-last:] if last else lines))
    return done.returncode
