"""Processes of `rivals` that start at once: one process has imported it all and forks the others.

    python tests/forge.py      reads {"words", "limit", "errors"} as lines of JSON, answers with a
                               process id

The process that forks never trains: what torch starts for that does not survive a fork.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import traceback
from pathlib import Path


class Forge:
    """Starts command lines as processes that can be killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def start(
        self, *words: str | Path, limit: int | None = None, errors: Path | None = None
    ) -> Child:
        """Begin a command; `limit` is the most bytes that a file of its may have.

        What it writes to stderr is added to the file `errors`.
        """
        assert self.process.stdin
        assert self.process.stdout
        asked = {"words": [str(word) for word in words], "limit": limit}
        line = json.dumps({**asked, "errors": str(errors or os.devnull)})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return Child(int(self.process.stdout.readline()), self)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(120)  # of a busy machine


class Child:
    """One command on its way."""

    def __init__(self, number: int, forge: Forge) -> None:
        self.number, self.forge = number, forge

    def ended(self) -> bool:
        """Its parent has not asked for it yet, so a dead one is still listed."""
        try:
            state = Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state in "ZX"

    def signal(self, number: int) -> None:
        os.kill(self.number, number)

    def wait(self) -> int:
        """Its status; −n if signal n ended it."""
        assert self.forge.process.stdin
        assert self.forge.process.stdout
        self.forge.process.stdin.write(json.dumps({"wait": self.number}) + "\n")
        self.forge.process.stdin.flush()
        return int(self.forge.process.stdout.readline())


def child(words: list[str], limit: int | None, errors: str) -> None:
    """Be a `rivals` of its own."""
    from rivals.cli.main import main

    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    status = 1
    try:
        main(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def serve() -> None:
    import torch

    import rivals.cli.main
    import rivals.experiment.start
    import rivals.model.learning  # noqa: F401

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)])  # torch imports half of itself when the first one is made
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                child(asked["words"], asked["limit"], asked["errors"])
        print(answer, flush=True)


if __name__ == "__main__":
    serve()
