"""The plan of `tailrace group delete`: a group, or some of its offsets."""

from datetime import datetime

from tailrace.cli.common import output
from tailrace.cli.common.connection import Connection
from tailrace.cli.common.output import Failure
from tailrace.cli.common.topics.partition_choice import Choice
from tailrace.cli.group import share
from tailrace.cli.group.groups import Commits, Groups, is_unknown, require_no_members

DOING = "nothing was deleted"


def plans(groups: Groups, brokers: Connection, names: list[str], choice: Choice | None) -> "list[Deletion]":
    """Returns a plan for each group. Raises a `Failure` where one does not exist, or has members."""
    found = groups.described(names)
    shared = {name: share.find(brokers, name) for name in names if is_unknown(found[name])}
    others = [name for name in names if shared.get(name) is None]
    found, committed = groups.require(others), groups.committed(others)
    for name in names:
        if (group := shared.get(name)) is not None:
            share.require_no_members(group, DOING)
            if choice is not None:
                share.refuse(brokers, name)
        else:
            require_no_members(found[name], DOING)
    return [Deletion(name, committed.get(name, {}), choice, is_shared=name in shared) for name in names]


class Deletion:
    """`doomed` are the offsets that go; without a `choice` all of them do, and the group with them."""

    def __init__(self, name: str, commits: Commits, choice: Choice | None, *, is_shared: bool = False) -> None:
        chosen = sorted(commits) if choice is None else choice.of(commits, f"group {name} has no offset in")
        self.doomed: Commits = {partition: commits[partition] for partition in chosen}
        self._name = name
        self._commits = commits
        self._is_whole = choice is None
        self._is_shared = is_shared

    def __str__(self) -> str:
        if self._is_shared:
            return f"share group {self._name}, with its place in its topics"
        offsets = output.plural(len(self.doomed), "offset")
        return f"group {self._name}, with {offsets}" if self._is_whole else f"{offsets} of group {self._name}"

    @property
    def way_back(self) -> str:
        for partition, commit in self.doomed.items():
            place = f"--topic {partition.topic}:{partition.number} --to {commit.offset}"
            return f"\n  an offset can be set again: `tailrace group reset {self._name} {place}`"
        return ""

    def carry_out(self, groups: Groups) -> None:
        kept = {partition: commit for partition, commit in self._commits.items() if partition not in self.doomed}
        if kept and not self._is_whole:
            self._replace(groups, kept)
        else:
            groups.delete(self._name)

    def _replace(self, groups: Groups, kept: Commits) -> None:
        """librdkafka's Python has no call that deletes single offsets: the group is deleted, and made again with those
        that stay. Meanwhile all of them are also under another name, so that nothing is lost whatever happens.
        """
        aside = f"{self._name}.before-{datetime.now():%Y%m%dT%H%M%S}"
        groups.commit(aside, self._commits)
        try:
            groups.delete(self._name)
        except Failure:
            groups.delete(aside)
            raise
        try:
            groups.commit(self._name, kept)
        except BaseException:
            output.warn(f"all offsets of {self._name} are in group {aside}; `tailrace group copy` brings them back")
            raise
        groups.delete(aside)
