"""The command line: one verb per file; a user's mistake is one sentence and exit status 2."""

from __future__ import annotations

import sys
from typing import Any

import typer

from rivals.cli.bench_command import bench
from rivals.cli.compare_command import compare
from rivals.cli.data_command import app as data
from rivals.cli.drop_command import drop
from rivals.cli.export_command import export
from rivals.cli.info_command import info
from rivals.cli.learn_command import learn
from rivals.cli.predict_command import predict
from rivals.cli.report_command import report
from rivals.cli.run_command import run
from rivals.cli.serve_command import serve
from rivals.errors import RivalsError

EXAMPLES = """\
rivals: continual learning on small devices. Rival units compete for each task; the winners ship.

  rivals learn parts --model model                      teach a device a folder of pictures
  rivals predict new.jpg --model model                  ask it
  rivals drop parts --model model                       take a task out, exactly
  rivals run digits                                     learn five tasks from the bundled digits
  rivals run digits-permuted --method finetune          the same machinery, forgetting
  rivals run digits --set epochs=5 --set units=4        change any setting
  rivals run digits --out DIR --resume                  go on after a stop or a crash
  rivals compare --benchmarks digits --seeds 0-2        a grid of methods and seeds, on all cores
  rivals report runs/compare --out report               tables, plots and one page of many runs
  rivals info runs/digits-twta-default-0                what a run, or a ticket of it, holds
  rivals export --model DIR --task 4-5 --to onnx t.onnx a file for a device, checked
  rivals serve --model parts                            a page to teach, try and take away
  rivals data                                           which data sets are there
  rivals bench --suite train                            what training costs, against dense ones

`rivals VERB --help` tells the rest.
"""

app = typer.Typer(
    add_completion=False, no_args_is_help=False, rich_markup_mode=None,
    help="Continual learning on small devices.",
)  # fmt: skip
app.command("learn")(learn)
app.command("predict")(predict)
app.command("drop")(drop)
app.command("run")(run)
app.command("info")(info)
app.command("compare")(compare)
app.command("report")(report)
app.command("export")(export)
app.command("bench")(bench)
app.command("serve")(serve)
app.add_typer(data, name="data")


@app.callback(invoke_without_command=True)
def bare(context: typer.Context) -> None:
    """Continual learning on small devices."""
    if context.invoked_subcommand is None:
        typer.echo(EXAMPLES, nl=False)


def main(arguments: list[str] | None = None) -> None:
    """Run a verb; every mistake of the user's ends in one sentence and status 2."""
    try:
        status = app(args=arguments, standalone_mode=False)
    except RivalsError as error:
        status = _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        status = 130
    except BrokenPipeError:
        status = 0
    except Exception as error:
        # Whatever is wrong with the words themselves; its class is private to the library.
        if not hasattr(error, "format_message"):
            raise
        status = _fail(_usage(error))
    sys.exit(status if isinstance(status, int) else 0)


def _fail(sentence: str) -> int:
    typer.echo(f"rivals: {sentence}", err=True)
    return 2


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "rivals"
    return f"{error.format_message().rstrip('.?')}; `{where} --help` lists what there is."


if __name__ == "__main__":
    main()
