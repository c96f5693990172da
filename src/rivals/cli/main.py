"""The command line. A user's mistake is one sentence on standard error and exit status 2."""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated, Any

import typer

from rivals.cli.ancestor_command import app as ancestor
from rivals.cli.bench_command import bench
from rivals.cli.check_command import check
from rivals.cli.compare_command import compare
from rivals.cli.data_command import app as data
from rivals.cli.echo import echo
from rivals.cli.explain_command import explain
from rivals.cli.export_command import export
from rivals.cli.info_command import info
from rivals.cli.join_command import join
from rivals.cli.learn_command import drop, learn
from rivals.cli.pack_command import pack, unpack
from rivals.cli.predict_command import predict
from rivals.cli.report_command import report
from rivals.cli.run_command import EPILOG, run
from rivals.cli.serve_command import serve
from rivals.cli.sign_command import sign
from rivals.cli.test_command import measure_accuracy
from rivals.cli.watch_command import watch
from rivals.errors import RivalsError, command_line

EXAMPLES = """\
rivals: continual learning on small devices.

A model of your own pictures:
  rivals learn photos/parts --model model               learn a folder of pictures as a new task
  rivals test photos/held-out --model model             accuracy, class by class
  rivals predict new.jpg --model model                  the class of a picture
  rivals explain new.jpg --model model                  which part of the picture decided
  rivals drop parts --model model                       delete a task; the others do not change
  rivals export --model model --task parts parts.onnx   a file for a device
  rivals check model                                    whole or damaged
  rivals sign model --key my.key                        so that others can trust it
  rivals pack model model.rivals                        one file that carries the model
  rivals unpack model.rivals --model here               and a model again
  rivals join model other --out both                    the tasks of both, bit for bit
  rivals serve --model model                            a local page to train and try a model
  rivals watch 0 --model model                          answers for a camera, a video or a folder
  rivals ancestor make model --out known                so that new models can start from it

Experiments:
  rivals run digits                                     five tasks of bundled pictures
  rivals run digits --method finetune                   the same with another method
  rivals run digits --set epochs=5 --set units=4        change any setting
  rivals run digits --out DIR --resume                  continue a stopped run
  rivals compare --benchmarks digits --seeds 0-2        many methods and seeds, on all cores
  rivals report runs/compare --out report               tables, plots and a page from runs
  rivals info runs/digits-twta-default-0                what a model, a run or a ticket holds
  rivals info --settings twta                           the settings of a method
  rivals data                                           the data sets and where they come from
  rivals bench --suite train                            the cost of training on this machine

`rivals VERB --help` lists all options of a verb.
"""

app = typer.Typer(
    add_completion=True, no_args_is_help=False, rich_markup_mode=None,
    help="Continual learning on small devices.",
)  # fmt: skip
app.command("learn")(learn)
app.command("test")(measure_accuracy)
app.command("predict")(predict)
app.command("explain")(explain)
app.command("drop")(drop)
app.command("info")(info)
app.command("export")(export)
app.command("check")(check)
app.command("sign")(sign)
app.command("pack")(pack)
app.command("unpack")(unpack)
app.command("join")(join)
app.command("serve")(serve)
app.command("watch")(watch)
app.command("run", epilog=EPILOG)(run)
app.command("compare", epilog=EPILOG)(compare)
app.command("report")(report)
app.command("bench")(bench)
app.add_typer(data, name="data")
app.add_typer(ancestor, name="ancestor")


def print_version(wanted: bool) -> None:
    """The versions of rivals, torch and Python; torch itself is not imported."""
    if not wanted:
        return
    import platform
    from importlib import metadata

    from rivals import __version__

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    echo(f"rivals {__version__}, torch {torch}, Python {platform.python_version()}")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def bare(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Continual learning on small devices."""
    if context.invoked_subcommand is None:
        typer.echo(EXAMPLES, nl=False)


def main(arguments: list[str] | None = None) -> None:
    """Run a verb and exit with its status."""
    with command_line():
        status = _run(arguments)
    sys.exit(status)


@cache
def commands() -> Any:
    """All verbs, ready to be parsed: built once in a process that runs several."""
    return typer.main.get_command(app)


def _run(arguments: list[str] | None) -> int:
    """Run a verb; its exit status."""
    try:
        status = commands()(args=arguments, standalone_mode=False, prog_name="rivals")
    except RivalsError as error:
        status = _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        status = 130
    except BrokenPipeError:
        status = 0
    except MemoryError:
        status = _fail("The memory is used up; close other programs and try again.")
    except Exception as error:
        # A mistake in the arguments; its class is private to the library.
        if not hasattr(error, "format_message"):
            raise
        status = _fail(_usage(error))
    return status if isinstance(status, int) else 0


def _fail(sentence: str) -> int:
    echo(f"rivals: {sentence}", err=True)
    return 2


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "rivals"
    return f"{error.format_message().rstrip('.?')}; see `{command} --help`."


if __name__ == "__main__":
    main()
