"""Names from elsewhere on the terminal: shown, never obeyed."""

from __future__ import annotations

import ast
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

import rivals
from rivals.cli.terminal import Terminal
from rivals.experiment.result_file import read_results, write_results

Accepted = Callable[..., str]
Refused = Callable[..., str]
NASTY = "a\x1b[31mred\x1b]0;title\x07\nrivals: all is well\r\x9b2J\u202e[bold]b[/bold][link=x]"
SHOWN = "[bold]b[/bold][link=x]"
CODES = ("\x1b", "\x07", "\r", "\x9b", "\u202e")


def terminal(forced: bool = False) -> tuple[Terminal, io.StringIO]:
    screen, written = Terminal(), io.StringIO()
    screen.file, screen.width = written, 200
    if forced:
        screen._force_terminal = True
    return screen, written


def test_lines_tables_titles_and_styled_texts() -> None:
    screen, written = terminal()
    screen.print(NASTY, soft_wrap=True)
    screen.print(Text(NASTY, style="bold"))
    table = Table(NASTY, title=NASTY, caption=NASTY)
    table.add_column(NASTY)
    table.add_row(NASTY, Text(NASTY))
    screen.print(table)
    said = written.getvalue()
    assert not any(code in said for code in CODES)
    assert said.count(SHOWN) == 8
    assert not any(line.startswith("rivals: all is well") for line in said.splitlines())
    assert all(said.splitlines().count(line) <= 2 for line in said.splitlines())


def test_progress_bars_keep_to_their_line() -> None:
    screen, written = terminal()
    with Progress(TextColumn("{task.description}", markup=False), console=screen) as progress:
        progress.add_task(NASTY)
    assert not any(code in written.getvalue() for code in CODES)
    assert written.getvalue().strip().count("\n") == 0
    assert "rivals: all is well" in written.getvalue()


def test_our_own_styles_still_work() -> None:
    screen, written = terminal(forced=True)
    screen.print(Text("plain ").append("bold", style="bold"))
    assert "bold" in written.getvalue()
    assert written.getvalue().count("\n") == 1


def test_the_names_in_a_run(finished: Path, tmp_path: Path, accepted: Accepted) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    results = read_results(run / "results.json")
    results |= {"method": NASTY, "subset": NASTY}
    for task in results["tasks"]:
        task |= {"name": f"{NASTY}{task['name']}", "classes": [NASTY, *task["classes"]]}
    write_results(run / "results.json", results)
    said = accepted("info", run)
    assert not any(code in said for code in CODES)
    assert "[bold]b[/bold]" in said
    assert json.loads(accepted("info", run, "--json"))["results"]["method"] == NASTY
    assert accepted("info", run, "--json").isascii()


def test_error_messages(tmp_path: Path, refused: Refused) -> None:
    told = refused("info", tmp_path / NASTY.replace("/", ""))
    assert not any(code in told for code in CODES)
    (tmp_path / "grid.yaml").write_text(json.dumps({"benchmarks": ["digits"], NASTY: 1}))
    told = refused("compare", tmp_path / "grid.yaml")
    assert not any(code in told for code in CODES)
    assert SHOWN in told
    refused(NASTY)


DIRECT = {  # these print what the user gave, JSON, or what went through `printable`
    "echo", "terminal", "predict_command", "serve_command",
}  # fmt: skip


def test_nothing_else_writes_to_the_terminal() -> None:
    """Use `echo`, `echo_json` or `Terminal`: a name in a folder may come from somebody else."""
    found = []
    for path in sorted((Path(rivals.__file__).parent / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if path.stem not in DIRECT and isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                own = path.stem == "main" and "EXAMPLES" in ast.unparse(node)
                if name in ("print", "Console", "typer.echo", "typer.secho") and not own:
                    found.append(f"{path.name}, line {node.lineno}: {name}")
    assert not found


@pytest.mark.parametrize("verb", [("data",), ("info", "--settings", "twta"), ("--version",)])
def test_output_without_foreign_names_is_as_before(verb: tuple[str], accepted: Accepted) -> None:
    said = accepted(*verb)
    assert said.endswith("\n")
    assert "\N{REPLACEMENT CHARACTER}" not in said
