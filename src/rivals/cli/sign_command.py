"""`rivals sign`: sign a model, a run, a ticket or an export, or make a pair of keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import JsonOption
from rivals.errors import RivalsError


def sign(
    path: Annotated[
        Path | None,
        typer.Argument(help="A model, a run, a ticket, an ancestor or an exported file."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The private key to sign with.")
    ] = None,
    new_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Make a private key, and its public key FILE.pub."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Sign PATH. `predict --require-signature KEY.pub` then refuses everything else."""
    from rivals.io import signatures

    if (path is None) == (new_key is None) or (path is None) != (key is None):
        raise RivalsError(
            "`rivals sign` needs PATH and --key FILE to sign, or --new-key FILE to make a pair of "
            "keys; give one of them."
        )
    if new_key is not None:
        public = signatures.new_key(new_key)
        facts = {"private_key": str(new_key), "public_key": str(public)}
        said = f"Made the private key {new_key}, to be kept secret, and the public key {public}."
    else:
        assert path is not None
        assert key is not None
        if not path.exists():
            raise RivalsError(f"There is nothing at {path} that could be signed.")
        from rivals.model.checking import check

        if not check(path).whole:
            raise RivalsError(f"{path} is damaged, so it was not signed; see `rivals check`.")
        facts = {"signature": str(signatures.sign(path, key))}
        said = f"Signed {path}: {facts['signature']}."
    if as_json:
        echo_json(facts)
    else:
        echo(said)
    return 0
