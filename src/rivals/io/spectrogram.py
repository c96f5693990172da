"""A sound as a picture: a log-mel spectrogram, made with numpy alone.

    samples ─► one rate, one length ─► power in windows ─► mel bands ─► decibels ─► grey picture

Time runs from left to right, high tones are at the top, and bright is loud. How it is made is
stored with what was learned (`SoundSettings`), so that every later sound is read the same way. Of a
longer sound the loudest part counts, and a shorter one is put into the middle of silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.pictures import MAX_MEMORY
from rivals.io.sounds import Sound, read_sound, sound_seconds

MOST_SECONDS, LEAST_SECONDS = 10.0, 0.2  # of a sound as a network sees it
QUIET = 1e-6  # power; a sound that is nowhere louder stays dark
TINY = 1e-12
COVERED = 0.9  # of the sounds that a model learns from are not longer than it looks at
BLOCKS = 100  # a second, by which the loudest part is found
MOST_VALUES = 2**21  # samples in all windows, which are in memory at once
LIMITS: dict[str, tuple[float, float]] = {
    "seconds": (LEAST_SECONDS, MOST_SECONDS), "rate": (4_000, 48_000), "window": (64, 2048),
    "step": (32, 2048), "bands": (8, 256), "low": (0, 24_000), "high": (100, 24_000),
    "decibels": (10, 120),
}  # fmt: skip


@dataclass(frozen=True)
class SoundSettings:
    """How sounds become pictures; the same for all sounds of a model.

    >>> settings = SoundSettings(seconds=1.0)
    >>> tone = np.sin(np.arange(8000) * 0.5)  # a second at 8,000 samples a second: 637 Hz
    >>> picture = settings.picture((8000, tone))
    >>> picture.shape, picture.dtype, int(picture.mean(1).argmax())
    ((64, 97), dtype('uint8'), 49)
    """

    seconds: float  # of a sound
    rate: int = 16_000  # samples a second, to which all sounds are brought
    window: int = 512  # samples
    step: int = 160  # samples from one window to the next
    bands: int = 64
    low: int = 60  # Hz, where the lowest band begins
    high: int = 7_600  # where the highest one ends
    decibels: int = 60  # from black to white, which is the loudest band of the sound

    @classmethod
    def checked(cls, facts: object) -> SoundSettings:
        """Settings from a file that may come from anybody; a ValueError is what is wrong."""
        if not isinstance(facts, Mapping) or set(facts) != {each.name for each in fields(cls)}:
            raise ValueError("does not say how sounds are read")
        for name, (low, high) in LIMITS.items():
            kinds = (int, float) if name == "seconds" else (int,)
            if type(facts[name]) not in kinds or not low <= facts[name] <= high:
                raise ValueError(f"has a {name} of sounds that is not possible")
        made = cls(**facts)
        if not made.low < made.high <= made.rate / 2 or made.step > made.window:
            raise ValueError("reads sounds in a way that is not possible")
        if made.size[0] * made.window > MOST_VALUES:
            raise ValueError("reads sounds in more steps than are possible")
        if made.length < made.window:
            raise ValueError("reads sounds that are too short")
        return made

    @classmethod
    def suiting(cls, sounds: Iterable[Sound]) -> SoundSettings:
        """As long as nearly all of some sounds; what cannot be read does not count."""
        found = []
        for sound in sounds:
            with suppress(RivalsError):
                found.append(sound_seconds(sound))
        seconds = float(np.quantile(found, COVERED)) if found else 1.0
        rounded = math.ceil(10 * seconds - 0.05) / 10  # 1.004 s is a second
        return cls(min(max(rounded, LEAST_SECONDS), MOST_SECONDS))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def length(self) -> int:
        """Samples of a sound."""
        return round(self.seconds * self.rate)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of a picture."""
        return (self.length - self.window) // self.step + 1, self.bands

    def __str__(self) -> str:
        return f"{self.seconds:g} s at {self.rate:,} Hz, {self.bands} mel bands"

    def picture(self, sound: Sound, name: str = "", memory: int = MAX_MEMORY) -> NDArray[np.uint8]:
        """The spectrogram (bands, windows) of a sound: a path, bytes of a WAV file, or a pair
        (rate, samples)."""
        rate, samples = read_sound(sound, name, memory)
        part = loudest(samples, round(self.seconds * rate), rate)
        whole = np.zeros(self.length)
        same = resampled(part, min(self.length, max(1, round(len(part) * self.rate / rate))))
        start = (self.length - len(same)) // 2
        whole[start : start + len(same)] = same
        windows = np.lib.stride_tricks.sliding_window_view(whole, self.window)[:: self.step]
        power = np.abs(np.fft.rfft(windows * np.hanning(self.window))) ** 2 / self.window**2
        level = 10 * np.log10(np.maximum(power @ self._filters, TINY))  # (windows, bands)
        top = max(float(level.max()), 10 * math.log10(QUIET))
        grey = (1 + (level - top) / self.decibels).clip(0, 1) * 255
        return np.ascontiguousarray(np.rint(grey).astype(np.uint8).T[::-1])

    @cached_property
    def _filters(self) -> NDArray[np.float64]:
        """(frequencies, bands): triangles that are equally wide on the mel scale."""
        steps = np.linspace(mel(self.low), mel(self.high), self.bands + 2)
        edges = 700 * (10 ** (steps / 2595) - 1)
        tones = np.fft.rfftfreq(self.window, 1 / self.rate)[:, None]
        rise = (tones - edges[:-2]) / (edges[1:-1] - edges[:-2])
        fall = (edges[2:] - tones) / (edges[2:] - edges[1:-1])
        found: NDArray[np.float64] = np.maximum(np.minimum(rise, fall), 0)
        return found


def mel(tone: float) -> float:
    """A frequency in Hz on the mel scale, where equal steps sound equally far apart."""
    return 2595 * math.log10(1 + tone / 700)


def loudest(samples: NDArray[np.float32], length: int, rate: int) -> NDArray[np.float32]:
    """The part of at most `length` samples with the most energy, found in steps of 10 ms."""
    if len(samples) <= length:
        return samples
    block = max(1, rate // BLOCKS)
    whole = samples[: len(samples) // block * block].reshape(-1, block)
    energy = np.einsum("ij,ij->i", whole, whole, dtype=np.float64)
    sums = np.concatenate([[0.0], energy.cumsum()])
    blocks = min(len(energy), max(1, length // block))
    start = block * int((sums[blocks:] - sums[:-blocks]).argmax())
    return samples[min(start, len(samples) - length) :][:length]


def resampled(samples: NDArray[np.float32], length: int) -> NDArray[np.float64]:
    """The same sound with another number of samples: its spectrum, cut off or continued by 0."""
    if length == len(samples):
        return samples.astype(np.float64)
    spectrum = np.fft.rfft(samples.astype(np.float64))
    spectrum = spectrum[: (min(length, len(samples)) + 1) // 2]  # below half of either rate
    return np.fft.irfft(spectrum, length) * (length / len(samples))
