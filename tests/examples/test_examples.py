"""The programs of examples/, which users copy: run, killed at any moment, and each message counts once, in order."""

import contextlib
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psycopg
import pytest
from crash.copiers import INPUT, OUTPUT, Copier, Feeder, Topics, difference, example, wait_for
from crash.victims import Victim, kept_on_failure
from postgres import Postgres

ROUNDS = 8
Rows = Callable[[], dict[str, list[str]]]


def by_key(rows: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key, value in rows:
        found[bytes(key).decode()].append(bytes(value).decode())
    return dict(found)


class Sqlite:
    """The results in a file."""

    def __init__(self, path: Path) -> None:
        self.where = str(path / "results.db")

    def rows(self) -> dict[str, list[str]]:
        with contextlib.closing(sqlite3.connect(self.where, timeout=60)) as database:
            try:
                return by_key(database.execute(f'SELECT key, value FROM "{OUTPUT}" ORDER BY id').fetchall())
            except sqlite3.OperationalError:  # there is no table yet
                return {}

    def crash(self) -> None:
        """A file has no process."""


class InPostgres:
    def __init__(self, server: Postgres) -> None:
        self._server = server
        self.where = server.dsn

    def rows(self) -> dict[str, list[str]]:
        with psycopg.connect(self.where) as database:
            try:
                return by_key(database.execute(f'SELECT key, value FROM "{OUTPUT}" ORDER BY id').fetchall())
            except psycopg.errors.UndefinedTable:
                return {}

    def crash(self) -> None:
        self._server.stop()
        self._server.start()


@pytest.fixture
def sqlite(tmp_path: Path) -> Sqlite:
    return Sqlite(tmp_path)


@pytest.fixture
def in_postgres() -> Iterator[InPostgres]:
    with Postgres() as server:
        yield InPostgres(server)


each_database = pytest.mark.parametrize(
    ("database", "program"),
    [
        pytest.param("sqlite", "offsets_in_sqlite", id="sqlite"),
        pytest.param("in_postgres", "offsets_in_postgres", id="postgres", marks=pytest.mark.needs("postgres")),
    ],
)


@contextlib.contextmanager
def fed_broker(path: Path) -> Iterator[tuple[Victim, Topics, Feeder]]:
    broker = Victim(path / "broker")
    with kept_on_failure(broker, "none"):
        broker.start()
        topics = Topics(broker.bootstrap)
        topics.create()
        feeder = Feeder(broker.bootstrap)
        try:
            yield broker, topics, feeder
        finally:
            feeder.stop()


def check(copier: Copier, topics: Topics, rows: Rows, transform: Callable[[str], str] = str) -> None:
    """The rest comes, and all of it is what it should be."""
    wanted = {key: [transform(value) for value in values] for key, values in topics.by_key(INPUT).items()}
    assert wanted
    count = sum(map(len, wanted.values()))
    wait_for([copier], lambda: sum(map(len, rows().values())) >= count, "the rest of the input")
    copier.kill()
    assert not difference(wanted, rows())


@pytest.mark.parametrize("program", ["copy_confluent", "copy_aiokafka"])
def test_a_copy_has_every_message_once(tmp_path: Path, program: str) -> None:
    with fed_broker(tmp_path) as (broker, topics, feeder):
        copier = Copier(example(program, broker.bootstrap), tmp_path / "copier")
        with contextlib.closing(copier):
            wait_for([copier], lambda: sum(topics.committed_ends()) > 0, "a commit")
            feeder.stop()
            check(copier, topics, lambda: topics.by_key(OUTPUT), str.upper)


@each_database
def test_a_database_has_every_message_once(
    tmp_path: Path, request: pytest.FixtureRequest, database: str, program: str
) -> None:
    results = request.getfixturevalue(database)
    with fed_broker(tmp_path) as (broker, topics, feeder):
        copier = Copier(example(program, broker.bootstrap, "--database", results.where), tmp_path / "copier")
        with contextlib.closing(copier):
            wait_for([copier], results.rows, "a commit")
            feeder.stop()
            check(copier, topics, results.rows)


@each_database
def test_two_programs_share_the_input_and_the_database(
    tmp_path: Path, request: pytest.FixtureRequest, database: str, program: str
) -> None:
    results = request.getfixturevalue(database)
    with fed_broker(tmp_path) as (broker, topics, feeder), contextlib.ExitStack() as stack:
        command = example(program, broker.bootstrap, "--database", results.where)
        copiers = [Copier([*command, "--instance", name], tmp_path / name) for name in ("a", "b")]
        for copier in copiers:
            stack.enter_context(contextlib.closing(copier))
            before = sum(map(len, results.rows().values()))
            copier.ensure()
            wait_for(copiers[:1], lambda before=before: sum(map(len, results.rows().values())) > before, "a commit")
        feeder.stop()
        check(copiers[0], topics, results.rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
@each_database
def test_a_database_has_every_message_once_after_kills(
    tmp_path: Path, request: pytest.FixtureRequest, database: str, program: str
) -> None:
    results = request.getfixturevalue(database)
    lot = random.Random(program)
    with fed_broker(tmp_path) as (broker, topics, feeder):
        copier = Copier(example(program, broker.bootstrap, "--database", results.where), tmp_path / "copier")
        with contextlib.closing(copier):
            for _ in range(ROUNDS):
                before = sum(map(len, results.rows().values()))
                wait_for([copier], lambda before=before: sum(map(len, results.rows().values())) > before, "a commit")
                time.sleep(lot.uniform(0.0, 0.4))
                killed = lot.choice(["program", "program", "broker", "database"])
                if killed == "program":
                    copier.kill()
                elif killed == "broker":
                    broker.kill()
                    broker.start()
                else:
                    results.crash()
            feeder.stop()
            check(copier, topics, results.rows)
