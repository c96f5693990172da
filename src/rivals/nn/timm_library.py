"""The library timm, imported when a backbone of it is asked for and never before.

timm imports torchvision, which wants the very version of torch that it was built for. Of another
one it finds no operators of its own, and then its import fails on two of them that it only
describes. They are declared here first, so that the rest can be used: backbones need none of them.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from functools import cache
from typing import Any

import torch

from rivals.errors import RivalsError, unknown
from rivals.io.reading import printable

MISSING = "operator torchvision::"  # how torch says that there is none
DESCRIBED = {  # operators that torchvision describes as it is imported
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@cache
def library() -> Any:
    """The module timm; where it cannot be imported, one sentence."""
    try:
        import_torchvision()
        return importlib.import_module("timm")
    except ModuleNotFoundError as error:
        raise RivalsError(
            f"An ancestor of timm needs the package {error.name}, not installed here; "
            "run pip install 'rivals[timm]'."
        ) from error
    except (ImportError, RuntimeError, AttributeError) as error:
        raise RivalsError(
            f"timm cannot be imported ({printable(str(error).splitlines()[0], 100)}); install "
            f"versions of timm and torchvision that belong to torch {torch.__version__}."
        ) from error


def import_torchvision() -> None:
    """torchvision, built for this torch or for another one."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if MISSING not in str(error):
            raise
        for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name, schema in DESCRIBED.items():
            torch.library.define(f"torchvision::{name}", schema)
        importlib.import_module("torchvision")


def check_architecture(name: str) -> None:
    """Refuse what is no network of timm; those most like it are named."""
    timm = library()
    if timm.is_model(name):
        return
    near = difflib.get_close_matches(name, timm.list_models(), cutoff=0.5)
    if near:
        raise unknown("network of timm", name, near)
    raise RivalsError(
        f"There is no network of timm named '{printable(name, 100)}'; "
        "`python -c 'import timm; print(timm.list_models())'` lists them."
    )
