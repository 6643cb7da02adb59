import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "readme_blocks.py"


def run_blocks(directory: Path, *blocks: str) -> subprocess.CompletedProcess[str]:
    readme = directory / "README.md"
    readme.write_text("\n\nProse between.\n\n".join(f"```{block}\n```" for block in blocks))
    return subprocess.run([sys.executable, SCRIPT, readme], capture_output=True, text=True)


def test_a_failing_command_fails_the_run_and_is_named_with_its_line_and_output(tmp_path: Path) -> None:
    done = run_blocks(tmp_path, "console\n$ true\n$ echo nearly; exit 3\n$ echo never")
    assert done.returncode == 1
    assert "README.md: line 3: $ echo nearly; exit 3\nexited with 3 after printing:\nnearly" in done.stderr
    assert "never" not in done.stdout


def test_a_failure_inside_a_pipeline_counts(tmp_path: Path) -> None:
    assert run_blocks(tmp_path, "console\n$ false | cat").returncode == 1


def test_a_failing_python_block_fails_the_run(tmp_path: Path) -> None:
    done = run_blocks(tmp_path, "python\nraise SystemExit('broken')")
    assert done.returncode == 1
    assert "broken" in done.stderr


def test_blocks_share_a_directory_and_run_in_order(tmp_path: Path) -> None:
    done = run_blocks(
        tmp_path,
        "console\n$ echo one > file",
        "python\nopen('file', 'a').write('two\\n')",
        "console check\n$ cat file\none\ntwo",
    )
    assert done.returncode == 0, done.stderr


def test_output_is_compared_only_where_the_block_says_check(tmp_path: Path) -> None:
    assert run_blocks(tmp_path, "console\n$ echo one\ntwo").returncode == 0
    done = run_blocks(tmp_path, "console check\n$ echo one\ntwo")
    assert done.returncode == 1
    assert "should print:\ntwo\nbut printed:\none" in done.stderr


def test_an_ellipsis_stands_for_what_differs_from_run_to_run(tmp_path: Path) -> None:
    assert run_blocks(tmp_path, "console check\n$ echo took 17 ms\ntook ... ms").returncode == 0


@pytest.mark.parametrize("command", ["$ echo a \\\n> b", "$ echo a \\\n    b", "$ cat <<END\n> a b\n> END"])
def test_a_command_may_span_lines(tmp_path: Path, command: str) -> None:
    assert run_blocks(tmp_path, f"console check\n{command}\na b").returncode == 0


def test_blocks_that_share_an_interpreter_share_names_and_others_have_none(tmp_path: Path) -> None:
    done = run_blocks(
        tmp_path,
        "python shared\nnumber = 7",
        "console\n$ echo 7 > file",
        "python shared\nassert int(open('file').read()) == number and __name__ == '__main__'",
    )
    assert done.returncode == 0, done.stderr
    assert "3 commands work" in done.stdout
    assert run_blocks(tmp_path, "python shared\nnumber = 7", "python\nnumber").returncode == 1


def test_a_failing_block_of_a_shared_interpreter_is_named_with_what_it_printed(tmp_path: Path) -> None:
    done = run_blocks(
        tmp_path, "python shared\nprint('good')", "python shared\nprint('bad'); missing", "console\n$ echo"
    )
    assert done.returncode == 1
    assert "README.md: line 8: python block of line 8\nfailed after printing:\nbad\nTraceback" in done.stderr
    assert "NameError: name 'missing' is not defined" in done.stderr


def test_no_run_and_other_languages_are_skipped(tmp_path: Path) -> None:
    done = run_blocks(tmp_path, "console no-run\n$ false", "text\n$ false", "console\n$ true")
    assert done.returncode == 0, done.stderr
    assert "1 commands work" in done.stdout


def test_a_background_command_runs_to_the_end_and_the_run_waits_for_its_output(tmp_path: Path) -> None:
    forever = "sleep 0.3; echo ready > state; echo it is ready; while true; do sleep 0.05; done"
    done = run_blocks(tmp_path, f"console background\n$ {forever}\nit is ready", "console check\n$ cat state\nready")
    assert done.returncode == 0, done.stderr
    assert "2 commands work" in done.stdout


def test_it_is_told_to_stop_also_where_a_command_fails(tmp_path: Path) -> None:
    mark = tmp_path / "stopped"
    forever = f"trap 'touch {mark}; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
    done = run_blocks(tmp_path, f"console background\n$ {forever}\nready", "console\n$ false")
    assert done.returncode == 1
    assert "$ false" in done.stderr
    assert mark.exists()


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("echo ready", "ended before the last command"),
        ("echo another thing", "should print:\nready\nbut printed:\nanother thing"),
        ("trap 'exit 7' TERM; echo ready; while true; do sleep 0.05; done", "stopped with 7"),
    ],
)
def test_a_command_in_the_background_that_ends_or_says_another_thing_fails_the_run(
    tmp_path: Path, command: str, complaint: str
) -> None:
    done = run_blocks(tmp_path, f"console background\n$ {command}\nready", "console\n$ sleep 0.3")
    assert done.returncode == 1
    assert complaint in done.stderr


def test_a_block_may_become_a_file(tmp_path: Path) -> None:
    done = run_blocks(tmp_path, "python file=hello.py\nprint('hi')", "console check\n$ python3 hello.py\nhi")
    assert done.returncode == 0, done.stderr
    assert "1 commands work" in done.stdout
