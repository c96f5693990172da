"""A model on the Hub: its folder as a repository, with a card."""

from __future__ import annotations

from os.path import lexists
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io import signatures
from rivals.io.files import flush_tree, new_folder
from rivals.io.hub import HubRepository
from rivals.io.reading import printable, read_bytes
from rivals.model import limits, manifest, packing, stored_file
from rivals.model.manifest import NAME
from rivals.model.model_card import PICTURE, check_report, confusion_picture, model_card
from rivals.model.testing import TestReport

CARD, TICKET = "README.md", "ticket.json"


def push(
    model: Path, repository: HubRepository, *, report: TestReport | None = None,
    license: str | None = None, private: bool | None = None, revision: str | None = None,
    card: bool = True,
) -> str:  # fmt: skip
    """Upload a model, which must be whole, as one commit; the address of the commit."""
    content, raw = packing.whole_model(model)
    if not content.tasks:
        raise RivalsError(f"The model {model} knows no task yet; teach it with `rivals learn`.")
    files = {NAME: raw}
    if lexists(model / signatures.NAME):
        signature = read_bytes(model / signatures.NAME, "signature", packing.SIGNATURE, model)
        files[signatures.NAME] = signature
    if card:
        if report:
            check_report(content, report)
            files[PICTURE] = confusion_picture(report)
        files[CARD] = model_card(repository.name, content, report, license).encode()
    for name, each in packing.stored_files(content).items():
        size = each.bytes or 0
        files[name] = stored_file.read_stored(model, each.file or "", each.sha256, size, name)
    count = len(content.tasks)
    message = f"Upload a model of {count:,} task{'' if count == 1 else 's'}"
    replaced = {signatures.NAME, PICTURE} if card else {signatures.NAME}

    def own(name: str) -> bool:
        return name in replaced or name.startswith(f"{stored_file.FOLDER}/")

    return repository.upload(files, message, own=own, private=private, revision=revision)


def pull(
    repository: HubRepository, folder: Path, revision: str | None = None, key: Path | None = None
) -> None:
    """Bring a model into the new folder `folder`, checked as every foreign model is.

    Only the files that its model.json names are fetched, and only as long as it says.
    """
    with new_folder(folder) as made, packing.in_place_of(made, Path(repository.name)):
        found = repository.snapshot(revision)
        if NAME not in found.names:
            what = "a ticket; use rivals.Ticket" if TICKET in found.names else "no model of rivals"
            raise RivalsError(
                f"{printable(repository.name)} holds {what}"
                + (".from_pretrained." if TICKET in found.names else "; check the name.")
            )
        found.fetch(NAME, made, limits.DESCRIPTION)
        content = manifest.parse(made, manifest.read_raw(made))
        packing.check_room(made, content.total_bytes())
        if signatures.NAME in found.names:
            found.fetch(signatures.NAME, made, packing.SIGNATURE)
        if key is not None:
            manifest.read_raw(made, key)  # before the rest is fetched
        for name, each in packing.stored_files(content).items():
            found.fetch(name, made, each.bytes or 0)
        found.end(made)
        flush_tree(made)
        packing.accept(made, key)
