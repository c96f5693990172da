"""A repository on the Hugging Face Hub: files go up in one commit, and come down bounded.

`huggingface_hub` (extra rivals[hub]) moves the bytes. What comes down is read by nobody here: it is
as foreign as any folder, and whoever asked for it checks it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.io.reading import check_plain, printable

HIDDEN = ".cache"  # what huggingface_hub leaves in a folder that it downloads to


@dataclass(frozen=True)
class HubRepository:
    """A repository of models.

    Args:
        name: user/name, or organisation/name.
        token: A token of the Hub; default: that of `hf auth login` or $HF_TOKEN.
        endpoint: The address of another Hub; default: $HF_ENDPOINT or huggingface.co.
    """

    name: str
    token: str | None = None
    endpoint: str | None = None

    def upload(
        self, files: Mapping[str, bytes], message: str, *, own: Callable[[str], bool],
        private: bool | None = None, revision: str | None = None,
    ) -> str:  # fmt: skip
        """Put `files` into the repository, made if it is not there, as one commit; its address.

        Other files for which `own` holds are removed: they belong to what was there before.
        """
        with self._in_words() as hub:
            api = hub.HfApi(endpoint=self.endpoint, token=self.token)
            try:
                api.model_info(self.name)
            except hub.errors.RepositoryNotFoundError:
                api.create_repo(self.name, private=private)
            if revision is not None:
                api.create_branch(self.name, branch=revision, exist_ok=True)
            there = api.model_info(self.name, revision=revision).siblings or []
            # As streams: bytes would go by the protocol Xet, which no other Hub speaks.
            pairs = ((path, io.BytesIO(data)) for path, data in files.items())
            changes = [hub.CommitOperationAdd(path, stream) for path, stream in pairs]
            names = (each.rfilename for each in there)
            old = [name for name in names if own(name) and name not in files]
            changes += [hub.CommitOperationDelete(name) for name in old]
            done = api.create_commit(self.name, changes, commit_message=message, revision=revision)
            return str(done.commit_url)

    def snapshot(self, revision: str | None = None) -> HubSnapshot:
        """The newest commit of a branch, or the one that is named."""
        with self._in_words(revision) as hub:
            api = hub.HfApi(endpoint=self.endpoint, token=self.token)
            found = api.model_info(self.name, revision=revision)
            names = frozenset(str(each.rfilename) for each in found.siblings or [])
            return HubSnapshot(self, str(found.sha), names)

    @property
    def address(self) -> str:
        """Of the Hub."""
        given = self.endpoint or importlib.import_module("huggingface_hub").constants.ENDPOINT
        return str(given)

    @contextlib.contextmanager
    def _in_words(self, revision: str | None = None) -> Iterator[Any]:
        """The package, and every error of it in one sentence."""
        hub = _package()
        try:
            with _quiet(hub):
                yield hub
        except RivalsError:
            raise
        except Exception as error:  # of the package and of its connection: no common class
            raise RivalsError(self._sentence(hub.errors, error, revision)) from error

    def _sentence(self, errors: Any, error: Exception, revision: str | None) -> str:
        name = printable(self.name, 100)
        status = getattr(getattr(error, "response", None), "status_code", None)
        login = "log in with `hf auth login`, or give a token"
        if isinstance(error, errors.HFValidationError):
            return f"'{name}' is no name of a repository; use user/name."
        if isinstance(error, errors.GatedRepoError):
            return f"The owner of {name} lets in only who asked; ask on its page, then {login}."
        if isinstance(error, errors.RevisionNotFoundError):
            return f"{name} has no revision '{printable(str(revision), 100)}'; see its history."
        if isinstance(error, errors.RepositoryNotFoundError):
            return (
                f"There is no repository {name} on {self.address}, or it is private; check the "
                f"name, or {login}."
            )
        if status in (401, 403):
            return f"{self.address} refused the token for {name} ({status}); {login} that may."
        if status is not None:
            return f"{self.address} answered {status} about {name}; try again later."
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return (
            f"{self.address} could not be reached for {name} ({printable(why, 160)}); connect to "
            "the network, or try again later."
        )


@dataclass(frozen=True)
class HubSnapshot:
    """A commit of a repository."""

    repository: HubRepository
    commit: str
    names: frozenset[str]

    def fetch(self, name: str, folder: Path, most: int) -> None:
        """Bring a file of at most `most` bytes into a folder, at its place there.

        Its size is asked for before, and it is not believed: more than that is not written.
        """
        repository = self.repository
        with repository._in_words(self.commit) as hub:
            there = {
                "repo_id": repository.name, "filename": name, "revision": self.commit,
                "endpoint": repository.endpoint,
            }  # fmt: skip
            token = repository.token
            url = hub.hf_hub_url(**there)
            facts = hub.get_hf_file_metadata(url, token=token, endpoint=repository.endpoint)
            if facts.size is None or facts.size > most:
                _too_large(repository.name, name, facts.size, most)

            class BoundedProgress(hub.utils.tqdm):  # type: ignore[misc, name-defined]
                """No bar, but a count of the bytes that came."""

                def __init__(self, *words: Any, **options: Any) -> None:
                    super().__init__(*words, **{**options, "disable": True})
                    self.came = 0

                def update(self, n: float | None = 1) -> None:
                    self.came += int(n or 0)
                    if self.came > most:
                        _too_large(repository.name, name, self.came, most)

            hub.hf_hub_download(**there, token=token, local_dir=folder, tqdm_class=BoundedProgress)

    def end(self, folder: Path) -> None:
        """Leave nothing in a folder but the files that were fetched, and no links."""
        shutil.rmtree(folder / HIDDEN, ignore_errors=True)
        check_plain(folder, "repository")


def _too_large(repository: str, name: str, size: int | None, most: int) -> None:
    found = "an unknown number of" if size is None else f"{size:,}"
    raise RivalsError(
        f"The file {printable(name)} of {repository} has {found} bytes, but at most {most:,} were "
        "expected, so it was not fetched."
    )


@contextlib.contextmanager
def _quiet(hub: Any) -> Iterator[None]:
    """Without its log and its progress bars."""
    log = logging.getLogger("huggingface_hub")
    level, without = log.level, hub.utils.are_progress_bars_disabled()
    log.setLevel(logging.CRITICAL)
    if not without:
        hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        log.setLevel(level)
        if not without:
            hub.utils.enable_progress_bars()


def _package() -> Any:
    try:
        for part in ("errors", "hf_api", "utils"):  # which set up its log, too
            importlib.import_module(f"huggingface_hub.{part}")
        return importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise RivalsError(
            "The Hub needs huggingface_hub, which is not installed; use pip install 'rivals[hub]'."
        ) from error
