"""A ticket: the small network of one task, with all it takes to use it, as a folder.

ticket.json           task, classes, preprocessing, architecture, winners, accuracy, cost,
                      and a checksum over all of this and the weights
weights.safetensors   its weights, nothing else
README.md             its card
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from rivals.answer import Answer, Choice
from rivals.errors import RivalsError
from rivals.io.checksum import BLANK, checksum_fits, with_checksum
from rivals.io.files import digest, write_folder
from rivals.io.pictures import Picture, to_pixels
from rivals.io.reading import UnreadableError, parse_json, printable, read_bytes
from rivals.io.sounds import Sound
from rivals.io.spectrogram import SoundSettings
from rivals.streams.task import Preprocessing
from rivals.tickets.cost import cost
from rivals.tickets.graph_words import build, describe
from rivals.tickets.ticket_checks import checked_facts, checked_tensors

FORMAT = 2
WITHOUT_CHECKSUM = 1  # the format of rivals 0.1: a checksum over the weights alone
FACTS, WEIGHTS, CARD = "ticket.json", "weights.safetensors", "README.md"
FACTS_BYTES = 4 * 2**20  # of ticket.json
WEIGHT_BYTES = 256 * 2**20
EXPORTS = "exports.json"  # what exports of this very ticket have shown, beside it
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError)


class Ticket(nn.Module):
    """The small network of one task with its preprocessing; runs without the model it came from.

    Called with raw images (n, channels, height, width), it gives probabilities (n, classes).

    >>> import rivals, torch
    >>> from rivals.streams.task import Preprocessing
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    >>> scaled = Preprocessing(16, (0.5,), (0.5,))
    >>> ticket = rivals.Ticket(network, "0-1", ("0", "1"), scaled, (1, 8, 8))
    >>> ticket(torch.zeros(3, 1, 8, 8, dtype=torch.uint8)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        network: nn.Module,
        task: str,
        classes: tuple[str, ...],
        preprocessing: Preprocessing,
        input_shape: tuple[int, int, int],
        winners: list[list[int]] | None = None,
        accuracy: float | None = None,
        sound: SoundSettings | None = None,
    ) -> None:
        super().__init__()
        self.network: Any = network
        self.task, self.classes, self.preprocessing = task, classes, preprocessing
        self.input_shape = input_shape
        self.winners = winners or []  # the unit that won each block, for each set of rivals
        self.accuracy = accuracy  # percent on test data, the task being known
        self.sound = sound  # how it reads sounds, where these are its pictures

    def forward(self, images: Tensor) -> Tensor:
        """Probabilities (n, classes) of raw images (n, channels, height, width) as stored."""
        return torch.softmax(self.logits(images), 1)

    def logits(self, images: Tensor) -> Tensor:
        """Scores (n, classes) of raw images, before the softmax."""
        scores: Tensor = self.network(self.preprocessing(images))
        return scores

    @torch.no_grad()
    def predict(self, picture: Picture | Sound) -> Answer:
        """What is on a picture: a path, bytes, a PIL image, an array or a tensor."""
        scale = self.preprocessing.scale
        pixels = to_pixels(picture, self.input_shape, scale, sound=self.sound)
        scores = self.logits(torch.from_numpy(pixels)[None])[0]
        check_finite(scores, f"The ticket of '{self.task}'")
        values, order = torch.softmax(scores, 0).sort(descending=True, stable=True)
        pairs = zip(order.tolist(), values.tolist(), strict=True)
        return Answer(tuple(Choice(self.classes[place], self.task, p) for place, p in pairs))

    @torch.no_grad()
    def verify(
        self, images: Tensor, scores: Callable[[Tensor], Tensor], tolerance: float = 1e-5
    ) -> float:
        """Compare with the network it was cut from, whose `scores` take prepared images.

        Gives the largest difference, relative to the largest score where that is above 1; more
        than `tolerance` is refused.
        """
        prepared = self.preprocessing(images)
        theirs = scores(prepared)
        scale = max(1.0, float(theirs.abs().max()))
        apart = float((self.network(prepared) - theirs).abs().max()) / scale
        if not apart <= tolerance:
            raise RivalsError(
                f"The ticket for '{self.task}' differs from its network by {apart:.1e}, where "
                f"{tolerance:.0e} is allowed; cut it anew."
            )
        return apart

    def fingerprint(self) -> str:
        """A digest of architecture and weights: equal bits, equal fingerprint."""
        data = safetensors.torch.save(_tensors(self.network))
        return digest(data + repr(describe(self.network)).encode())

    def save(self, folder: str | Path) -> None:
        folder = Path(folder)
        data = safetensors.torch.save(_tensors(self.network))
        size = cost(self.network, self.input_shape)
        facts = {
            "format": FORMAT,
            "task": self.task,
            "classes": list(self.classes),
            "preprocessing": vars(self.preprocessing),
            "input_shape": list(self.input_shape),
            "architecture": describe(self.network),
            "winners": self.winners,
            "accuracy": self.accuracy,
            "weights": size.weights,
            "bytes": len(data),
            "macs": size.macs,
            "ram": size.ram,
            **({"sound": self.sound.to_dict()} if self.sound else {}),
            "sha256": BLANK,
        }
        files = {
            WEIGHTS: data,
            FACTS: with_checksum(_lines(facts).encode(), data),
            CARD: card(facts).encode(),
        }
        write_folder(folder, files, old=(EXPORTS,))

    @classmethod
    def load(cls, folder: str | Path) -> Ticket:
        """Read a ticket folder; altered or foreign content is refused in one sentence."""
        folder = Path(folder)
        facts, data = read_ticket(folder)
        try:
            facts = checked_facts(facts)
            tensors = safetensors.torch.load(checked_tensors(data))
            prepare = facts["preprocessing"]
            return cls(
                build(facts["architecture"], tensors, facts["input_shape"], len(facts["classes"])),
                facts["task"],
                tuple(facts["classes"]),
                Preprocessing(prepare["scale"], tuple(prepare["mean"]), tuple(prepare["std"])),
                tuple(facts["input_shape"]),
                facts["winners"],
                facts["accuracy"],
                SoundSettings.checked(facts["sound"]) if "sound" in facts else None,
            )
        except (*DAMAGE, safetensors.SafetensorError) as error:
            raise RivalsError(
                f"The ticket {folder} is damaged: its ticket.json is not complete or does not fit "
                f"its weights ({printable(f'{type(error).__name__}: {error}')})."
            ) from error

    def push_to_hub(
        self, name: str, *, license: str | None = None, private: bool | None = None,
        revision: str | None = None, token: str | None = None, endpoint: str | None = None,
    ) -> str:  # fmt: skip
        """Upload the ticket to the Hugging Face Hub, with a card; gives the commit's address.

        Args:
            name: The repository, user/name; made if it is not there.
            license: Of your ticket, as the Hub names it, e.g. apache-2.0; by default none is named.
            private: Whether a new repository is private; by default the Hub's own choice.
            revision: The branch; by default main.
            token: A token of the Hub; by default that of `hf auth login` or $HF_TOKEN.
            endpoint: The address of another Hub; by default $HF_ENDPOINT or huggingface.co.
        """
        from rivals.io.hub import HubRepository
        from rivals.io.hub_card import escaped, header

        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "ticket"
            self.save(folder)
            files = {each: (folder / each).read_bytes() for each in (FACTS, WEIGHTS)}
        facts = parse_json(files[FACTS], FACTS)
        text = card(facts, f"from_pretrained({name!r})", escaped)
        files[CARD] = f"{header(license)}\n{text}".encode()
        return HubRepository(name, token, endpoint).upload(
            files, "Upload a ticket", own=lambda each: False, private=private, revision=revision
        )

    @classmethod
    def from_pretrained(
        cls, name: str, *, revision: str | None = None, token: str | None = None,
        endpoint: str | None = None,
    ) -> Ticket:  # fmt: skip
        """A ticket from the Hugging Face Hub, checked as `load` does; arguments as above."""
        from rivals.io.hub import HubRepository

        found = HubRepository(name, token, endpoint).snapshot(revision)
        if FACTS not in found.names:
            raise RivalsError(
                f"{printable(name)} holds no ticket; of a model, take a ticket with "
                "rivals.Model.from_pretrained(NAME).ticket(TASK)."
            )
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            found.fetch(FACTS, folder, FACTS_BYTES)
            found.fetch(WEIGHTS, folder, WEIGHT_BYTES)
            found.end(folder)
            try:
                return cls.load(folder)
            except RivalsError as error:
                raise type(error)(str(error).replace(place, name)) from error


def read_ticket(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The facts and the weights of a ticket folder, whose checksum fits."""
    text = read_bytes(folder / FACTS, "ticket", FACTS_BYTES, folder)
    facts = parse_json(text, f"The ticket {folder / 'ticket.json'}")
    stated = facts.get("format")
    if type(stated) is not int or stated not in (WITHOUT_CHECKSUM, FORMAT):
        raise RivalsError(
            f"The ticket {folder} has format {printable(str(stated), 20)}, and this version reads "
            f"{WITHOUT_CHECKSUM} and {FORMAT}; use the version of rivals that wrote it."
        )
    try:
        data = read_bytes(folder / WEIGHTS, "weights", WEIGHT_BYTES, folder)
    except UnreadableError as error:
        raise RivalsError(f"The ticket {folder} has no readable weights: {error}") from error
    if stated == WITHOUT_CHECKSUM:
        fits, what = facts.get("sha256") == digest(data), "weights of the ticket"
    else:
        fits, what = checksum_fits(text, data), "facts or the weights of the ticket"
    if not fits:
        raise RivalsError(f"The {what} {folder} were altered: checksums differ.")
    return facts, data


def check_ticket(folder: Path) -> list[str]:
    """Check a ticket folder; what is damaged raises a RivalsError.

    Returns what was found, a sentence each: task and classes, size, checksum.
    """
    ticket, (facts, data) = Ticket.load(folder), read_ticket(folder)
    found = [
        f"A ticket for {printable(ticket.task)} with {len(ticket.classes)} classes.",
        f"{sum(p.numel() for p in ticket.network.parameters()):,} weights in {len(data):,} bytes, "
        "which fit its layers and are finite.",
    ]
    if facts["format"] == WITHOUT_CHECKSUM:
        found.append(
            "Only its weights have a checksum, as in tickets of rivals 0.1; a changed class name "
            "would not be noticed. Save it again to have one."
        )
    else:
        found.append("The checksum over ticket.json and the weights fits.")
    return found


def check_finite(scores: Tensor, name: str) -> None:
    """Refuse scores that are not finite: they are no answer, and would be taken for a class."""
    if not bool(torch.isfinite(scores).all()):
        raise RivalsError(
            f"{name} answers with numbers that are not finite, which is no class; learn it again."
        )


def _lines(facts: dict[str, Any]) -> str:
    """JSON with a line for each fact: short, and still to be read."""
    values = (json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in facts.values())
    pairs = (f"{json.dumps(key)}: {value}" for key, value in zip(facts, values, strict=True))
    return "{\n" + ",\n".join(pairs) + "\n}\n"


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in network.state_dict().items()}


def card(
    facts: dict[str, Any], load: str = 'load("this folder")', shown: Callable[[str], str] = str
) -> str:
    """What a person wants to know of a ticket, in Markdown.

    `load` is the call that reads it, `shown` makes names safe for where the card is read.
    """
    accuracy = "not measured" if facts["accuracy"] is None else f"{facts['accuracy']:.1f} %"
    channels, height, width = facts["input_shape"]
    scale = facts["preprocessing"]["scale"]
    sound = SoundSettings(**facts["sound"]) if "sound" in facts else None
    heard = f"| reads sounds | {sound}, as a picture |\n" if sound else ""
    return f"""# Ticket for "{shown(facts["task"])}"

A plain network cut from a shared one. It needs nothing but its weights.

| | |
|---|---|
| classes | {", ".join(map(shown, facts["classes"]))} |
| input | {channels} × {height} × {width} pixels, (pixels / {scale:g} − mean) / std |
{heard}| accuracy, task known | {accuracy} |
| weights | {facts["weights"]:,} |
| file | {facts["bytes"]:,} bytes |
| multiplications for one image | {facts["macs"]:,} |
| memory between layers | {facts["ram"]:,} bytes |

```python
import rivals

ticket = rivals.Ticket.{load}
probabilities = ticket(images)  # raw pixels, (n, {channels}, {height}, {width})
```
"""
