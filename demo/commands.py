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


def tailrace(screen: Screen, directory: Path, *arguments: str) -> int:
    """Runs a verb, shows what it prints, and returns what it ended with."""
    screen.say(f"\n$ tailrace {' '.join(arguments)}", "dim")
    command = [sys.executable, "-m", "tailrace", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
    screen.say((done.stdout + done.stderr).rstrip())
    return done.returncode
