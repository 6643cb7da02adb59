"""Child processes of a broker, by their modules."""

from pathlib import Path

from waits import until

from tailrace.testing.broker_process import BrokerProcess


def child_of(broker: BrokerProcess, module: str) -> int | None:
    """The process id of the child that runs the module, None where there is none."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            if parent == broker.pid and module.encode() in path.joinpath("cmdline").read_bytes():
                return int(path.name)
        except (OSError, IndexError):
            continue
    return None


def new_child(broker: BrokerProcess, module: str, before: int | None = None) -> int:
    """Waits for a child that is not `before`."""
    until(lambda: child_of(broker, module) not in (None, before), 30)
    pid = child_of(broker, module)
    assert pid is not None
    return pid


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
