"""The one reader of sounds: WAV files, which may come from anybody, as numbers of one channel.

A file says in its head how long it is; that is compared with what is there, and with the limits,
before any of it is read. Samples of 8, 16, 24 or 32 bits and floats of 32 or 64 bits are read, and
channels become their mean. Other formats are not: their decoders are large and can be attacked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.pictures import MAX_MEMORY, is_wav, open_regular, source_name

# A path, the bytes of a WAV file, or (rate, samples) as scipy.io.wavfile.read gives them.
Sound: TypeAlias = str | os.PathLike[str] | bytes | tuple[int, NDArray[Any]]

SUFFIXES = {".wav", ".wave"}
OTHER_SUFFIXES = {".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".aif", ".aiff", ".wma"}
RATES = (4_000, 192_000)  # samples a second
LONGEST = 60.0  # seconds
SHORTEST = 0.02
MAX_CHANNELS = 8
MOST_PARTS = 100  # of a file, before its samples
UNKNOWN_SIZE = 0x7FFFF000  # from here on: written by a program that could not go back to its head
BLOCK = 2**16  # samples of every channel that are converted at once
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE  # kinds of samples
DIVISORS = {"u1": 2**7, "i2": 2**15, "i4": 2**31}
TYPES = {(PCM, 8): "u1", (PCM, 16): "<i2", (PCM, 24): "3u1", (PCM, 32): "<i4",
         (FLOAT, 32): "<f4", (FLOAT, 64): "<f8"}  # fmt: skip


@dataclass(frozen=True)
class SoundHead:
    """What a WAV file says of itself, checked."""

    rate: int  # samples a second
    channels: int
    kind: str  # of a sample: a type of numpy; 3u1 has 24 bits
    length: int  # samples of every channel
    start: int  # where they begin in the file

    @property
    def seconds(self) -> float:
        return self.length / self.rate


def is_sound(item: object) -> bool:
    """Whether this is a sound and no picture: by the ending of a path, or by the first bytes."""
    if isinstance(item, str | os.PathLike):
        return os.path.splitext(os.fspath(item))[1].lower() in SUFFIXES | OTHER_SUFFIXES
    if isinstance(item, bytes):
        return is_wav(item)
    return (
        isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], int | np.integer)
        and not isinstance(item[1], int | np.integer)
    )  # fmt: skip


def sound_seconds(sound: Sound) -> float:
    """How long a sound is, from the head of its file."""
    if isinstance(sound, tuple):
        rate, samples = _checked_samples(sound, "The sound")
        return len(samples) / rate
    with _opened(sound, "") as (file, name):
        return _head(file, name).seconds


def read_sound(
    sound: Sound, name: str = "", memory: int = MAX_MEMORY
) -> tuple[int, NDArray[np.float32]]:
    """Samples a second, and the samples of a sound from −1 to 1 in one channel.

    Args:
        sound: A path, the bytes of a WAV file, or (rate, samples).
        name: What error messages call it; by default its path, or "The sound".
        memory: Bytes that reading it may take, beside the file itself.
    """
    if isinstance(sound, tuple):
        return _checked_samples(sound, name or "The sound")
    with _opened(sound, name) as (file, name):
        head = _head(file, name)
        needed = 4 * head.length + 24 * BLOCK * head.channels
        if needed > memory:
            raise RivalsError(
                f"{name} takes {needed / 1e6:,.0f} MB of memory, but {memory / 1e6:,.0f} is the "
                "limit; cut it into shorter pieces."
            )
        return head.rate, _samples(file, head, name)


@contextmanager
def _opened(sound: str | os.PathLike[str] | bytes, name: str) -> Iterator[tuple[IO[bytes], str]]:
    name = name or ("The sound" if isinstance(sound, bytes) else source_name(sound))
    try:
        with open_regular(sound, "sound") as file:
            yield file, name
    except FileNotFoundError as error:
        raise RivalsError(f"There is no sound {name}.") from error
    except IsADirectoryError as error:
        raise RivalsError(f"{name} is a folder, but a sound was expected.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RivalsError(f"{name} cannot be read ({reason}).") from error


def _head(file: IO[bytes], name: str) -> SoundHead:
    """What a file says of itself, compared with its size and with the limits."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if not is_wav(file.read(12)):
        raise RivalsError(
            f"{name} is not a WAV file, and no other sounds are read; convert it, for example "
            "with ffmpeg -i SOUND sound.wav."
        )
    form: tuple[str, int, int] | None = None
    for _ in range(MOST_PARTS):
        part = file.read(8)
        if len(part) < 8:
            break
        length, start = int.from_bytes(part[4:], "little"), file.tell()
        if part[:4] == b"fmt ":
            form = _form(file.read(min(length, 40)), name)
        elif part[:4] == b"data" and form is not None:
            if length >= UNKNOWN_SIZE:
                length = size - start
            if length > size - start:
                raise RivalsError(
                    f"{name} is cut off: its head says {length:,} bytes of sound, but "
                    f"{size - start:,} are there; copy or record it again."
                )
            kind, channels, rate = form
            return _checked(SoundHead(rate, channels, kind, length // _width(form), start), name)
        file.seek(start + length + length % 2)
    raise RivalsError(f"{name} is a WAV file without samples; record it again.")


def _form(data: bytes, name: str) -> tuple[str, int, int]:
    """The type of a sample, channels and rate, from the part of a file that says so."""
    numbers = [int.from_bytes(data[k : k + 2], "little") for k in range(0, len(data), 2)]
    if len(data) < 16 or (numbers[0] == EXTENSIBLE and len(data) < 26):
        raise RivalsError(f"{name} is a WAV file with a damaged head; record it again.")
    kind = numbers[12] if numbers[0] == EXTENSIBLE else numbers[0]
    channels, rate, bits = numbers[1], int.from_bytes(data[4:8], "little"), numbers[7]
    if (kind, bits) not in TYPES:
        raise RivalsError(
            f"{name} has samples of kind {kind} with {bits} bits, but plain ones of 8, 16, 24 or "
            "32 bits or floats are read; save it as 16-bit PCM."
        )
    if not 1 <= channels <= MAX_CHANNELS:
        raise RivalsError(
            f"{name} has {channels} channels, but 1 to {MAX_CHANNELS} are read; save it as mono."
        )
    if numbers[6] != channels * bits // 8:
        raise RivalsError(f"{name} is a WAV file with a damaged head; record it again.")
    return TYPES[kind, bits], channels, rate


def _width(form: tuple[str, int, int]) -> int:
    """Bytes of one sample of every channel."""
    return np.dtype(form[0]).itemsize * form[1]


def _checked(head: SoundHead, name: str) -> SoundHead:
    _check_limits(head.rate, head.length, name)
    return head


def _check_limits(rate: int, length: int, name: str) -> None:
    low, high = RATES
    if not low <= rate <= high:
        raise RivalsError(
            f"{name} has {rate:,} samples a second, but {low:,} to {high:,} are read; save it "
            "with 16,000."
        )
    if not SHORTEST <= length / rate <= LONGEST:
        raise RivalsError(
            f"{name} is {length / rate:.3g} s long, but a sound has {SHORTEST} to {LONGEST:g} s; "
            + ("cut it into pieces." if length / rate > LONGEST else "record more.")
        )


def _samples(file: IO[bytes], head: SoundHead, name: str) -> NDArray[np.float32]:
    """All samples, block by block, so that only one block is in memory in two forms."""
    found, done = np.empty(head.length, np.float32), 0
    file.seek(head.start)
    width = np.dtype(head.kind).itemsize * head.channels
    while done < head.length:
        count = min(BLOCK, head.length - done)
        data = file.read(count * width)
        if len(data) < count * width:
            raise RivalsError(f"{name} became shorter while it was read; try again.")
        if head.kind == "3u1":  # 24 bits are the upper three bytes of 32
            four = np.zeros((count * head.channels, 4), np.uint8)
            four[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            values: NDArray[Any] = four.view("<i4").reshape(count, head.channels)
        else:
            values = np.frombuffer(data, head.kind).reshape(count, head.channels)
        found[done : done + count] = _mono(values)
        done += count
    return _finite(found, name)


def _mono(values: NDArray[Any]) -> NDArray[np.float32]:
    """Samples (n, channels) of any type as (n,) floats from −1 to 1."""
    kind = values.dtype.str[1:]
    scaled = values.astype(np.float64)
    if kind == "u1":
        scaled -= DIVISORS[kind]
    with np.errstate(over="ignore", invalid="ignore"):  # looked for at the end
        mean = scaled.mean(1) / DIVISORS.get(kind, 1)
        return np.asarray(mean, np.float32)


def _finite(samples: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    if not np.isfinite(samples).all():
        raise RivalsError(f"{name} has samples that are no numbers; save it as 16-bit PCM.")
    return samples


def _checked_samples(sound: tuple[int, Any], name: str) -> tuple[int, NDArray[np.float32]]:
    """A pair (rate, samples) that was given in Python; samples are (n,) or (n, channels)."""
    rate, samples = int(sound[0]), np.asarray(sound[1])
    columns: Sequence[int] = (*samples.shape, 1)
    known = samples.dtype.kind == "f" or samples.dtype.str[1:] in DIVISORS
    if samples.ndim not in (1, 2) or not known or not 1 <= columns[1] <= MAX_CHANNELS:
        raise RivalsError(
            f"{name} has samples of {samples.dtype} {samples.shape}, but (n,) or (n, channels) of "
            "floats from −1 to 1, uint8, int16 or int32 was expected."
        )
    _check_limits(rate, len(samples), name)
    return rate, _finite(_mono(samples.reshape(len(samples), -1)), name)
