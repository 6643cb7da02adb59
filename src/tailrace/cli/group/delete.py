"""The plan of `tailrace group delete`: a group, or some of its offsets."""

from datetime import datetime

from tailrace.cli.common import output
from tailrace.cli.common.output import Failure
from tailrace.cli.common.topics.partition_choice import Choice
from tailrace.cli.group.groups import Commits, Groups


class Deletion:
    """`doomed` are the offsets that go; without a `choice` all of them do, and the group with them."""

    def __init__(self, name: str, commits: Commits, choice: Choice | None) -> None:
        chosen = sorted(commits) if choice is None else choice.of(commits, f"group {name} has no offset in")
        self.doomed: Commits = {partition: commits[partition] for partition in chosen}
        self._name = name
        self._commits = commits
        self._is_whole = choice is None

    def __str__(self) -> str:
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
