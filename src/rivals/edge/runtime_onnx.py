"""onnxruntime, for `.onnx` and `.ort`: one thread and no memory arena, to use little memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.reading import printable

SECONDS = 30.0  # for an image; a ticket takes milliseconds, and a file of others might take years
onnxruntime.set_default_logger_severity(4)  # errors are raised; what has no session is silent, too


class OnnxRuntime:
    """A session of onnxruntime on the CPU."""

    def __init__(self, path: Path, data: bytes, threads: int = 1) -> None:
        self.path = path
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 4  # errors are raised; print nothing
        try:
            # Bytes: if onnxruntime reads the file itself, its errors do not say why it failed.
            # No fallback: there is none, and onnxruntime would print that it tries.
            # Constants are not computed while it loads, for that has no end that could be set.
            self.session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"], enable_fallback=False,
                disabled_optimizers=["ConstantFolding"],
            )  # fmt: skip
            self.input = self.session.get_inputs()[0].name
        except Exception as error:  # onnxruntime has no common base class for its errors
            raise RivalsError(
                f"{path} is not an artefact that onnxruntime {onnxruntime.__version__} can run "
                f"({_first_line(error)}); export it again."
            ) from error

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        options, seconds = onnxruntime.RunOptions(), SECONDS * len(images)
        _deadlines.begin(options, seconds)
        try:
            outputs: list[NDArray[Any]] = self.session.run(None, {self.input: images}, options)
        except Exception as error:
            if options.terminate:
                raise RivalsError(
                    f"{self.path} took more than {seconds:g} s for {len(images)} images, so it was "
                    "stopped; export it again, from a model that you trust."
                ) from error
            raise RivalsError(
                f"{self.path} could not be run ({_first_line(error)}); export it again."
            ) from error
        finally:
            _deadlines.end(options)
        return outputs


class RunDeadlines:
    """Stops runs that take too long. One thread looks at all of them, and ends when none is left.

    A timer for each run would take longer than most runs.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs: dict[int, tuple[float, Any]] = {}  # by the identity of their options
        self.looks = False  # whether there is a thread

    def begin(self, options: Any, seconds: float) -> None:
        with self.lock:
            self.runs[id(options)] = time.monotonic() + seconds, options
            if not self.looks:
                self.looks = True
                threading.Thread(target=self._look, daemon=True).start()

    def end(self, options: Any) -> None:
        with self.lock:
            del self.runs[id(options)]

    def _look(self) -> None:
        while True:
            time.sleep(min(1.0, SECONDS / 2))
            with self.lock:
                for until, options in self.runs.values():
                    if time.monotonic() > until:
                        options.terminate = True
                if not self.runs:
                    self.looks = False
                    return


_deadlines = RunDeadlines()


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return printable(text.splitlines()[0])
