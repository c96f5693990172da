"""What a folder holds: a ticket, a run, a model or an ancestor."""

from __future__ import annotations

from os.path import lexists
from pathlib import Path

from rivals.errors import RivalsError
from rivals.model.manifest import NAME

CARD_INSIDE = "card.json"  # of a C program or a page
FILES = {  # the first one decides
    NAME: "model", "config.yaml": "run", "ticket.json": "ticket", "ancestor.json": "ancestor",
}  # fmt: skip


def folder_kind(folder: Path) -> str:
    """`ticket`, `run`, `model` or `ancestor`; another folder is refused in one sentence."""
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError as error:
        raise RivalsError(
            f"There is no folder {folder}; make a model with `rivals learn FOLDER --model "
            f"{folder}`, or a run with `rivals run`."
        ) from error
    except NotADirectoryError as error:
        raise RivalsError(
            f"{folder} is a file, but the folder of a model, a run or a ticket was expected; "
            "`rivals check` describes exported files, `rivals unpack` opens packed models."
        ) from error
    except OSError as error:
        raise RivalsError(f"The folder {folder} cannot be read ({error.strerror}).") from error
    for file, kind in FILES.items():
        if file in names:
            return kind
    raise RivalsError(
        f"{folder} holds neither a model, a run nor a ticket; make a model with `rivals learn`, "
        "or a run with `rivals run`."
    )


def is_exported_folder(folder: Path) -> bool:
    """Whether a folder is an exported C program or page: it has a card, and is no model or run."""
    if not lexists(folder / CARD_INSIDE):
        return False
    return not any(lexists(folder / name) for name in FILES)
