"""Sounds as pictures: WAV files are read, become spectrograms, and are learned and answered."""

from __future__ import annotations

import io
import json
import shutil
import struct
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy import signal
from scipy.io import wavfile

import rivals
from rivals.cli.main import main
from rivals.errors import RivalsError
from rivals.io import sounds
from rivals.io.pictures import to_pixels
from rivals.io.sounds import read_sound, sound_seconds
from rivals.io.spectrogram import SoundSettings, loudest, resampled
from rivals.model import manifest

RATE = 8000
RNG = np.random.default_rng(0)
SECOND = SoundSettings(seconds=1.0)


def tone(pitch: float, seconds: float = 0.4, rate: int = RATE) -> NDArray[np.float64]:
    """A tone in noise, with a beginning and an end."""
    times = np.arange(round(seconds * rate)) / rate
    sound = np.sin(2 * np.pi * pitch * times) * np.hanning(len(times))
    return 0.5 * sound + RNG.normal(0, 0.01, len(times))


def wav(samples: NDArray[Any], rate: int = RATE) -> bytes:
    """The bytes of a WAV file, as scipy writes it."""
    file = io.BytesIO()
    wavfile.write(file, rate, samples)
    return file.getvalue()


def as_type(samples: NDArray[np.float64], kind: str) -> NDArray[Any]:
    if kind[0] == "f":
        return samples.astype(kind)
    scaled = samples * (2 ** (8 * int(kind[1]) - 1) - 1)
    return (scaled + (128 if kind == "u1" else 0)).round().astype(kind)


def sound_folder(root: Path, count: int = 8) -> Path:
    """Low and high tones, each in a subfolder."""
    for name, pitch in (("low", 300), ("high", 2000)):
        (root / name).mkdir(parents=True)
        for k in range(count):
            samples = as_type(tone(pitch * RNG.uniform(0.9, 1.1)), "i2")
            (root / name / f"{k}.wav").write_bytes(wav(samples))
    return root


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0, capsys.readouterr().err
    return capsys.readouterr().out


# Reading WAV files --------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    ("kind", "apart"), [("u1", 8e-3), ("i2", 4e-5), ("i4", 1e-7), ("f4", 1e-7), ("f8", 1e-7)]
)
def test_every_kind_of_samples_is_the_same_sound(kind: str, apart: float, channels: int) -> None:
    samples = tone(440)
    columns = np.stack([samples] * channels, axis=1)
    rate, found = read_sound(wav(as_type(columns, kind)))
    assert rate == RATE
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, samples, atol=apart)
    assert sound_seconds(wav(as_type(columns, kind))) == 0.4
    np.testing.assert_array_equal(read_sound((RATE, as_type(columns, kind)))[1], found)


def test_samples_of_24_bits_from_another_writer() -> None:
    """The standard library writes them; the parts after the samples are not read."""
    values = np.array([0, 1, -1, 2**23 - 1, -(2**23)] * 100, np.int32)
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 3, 16000, len(values), "NONE", ""))
        writer.writeframes(b"".join(int(v).to_bytes(3, "little", signed=True) for v in values))
    data = file.getvalue() + b"LIST\x04\0\0\0INFO"
    assert np.array_equal(read_sound(data)[1] * 2**23, values)


def test_the_channels_are_averaged() -> None:
    left, right = tone(300), tone(900)
    found = read_sound((RATE, np.stack([left, right], axis=1)))[1]
    np.testing.assert_allclose(found, (left + right) / 2, atol=1e-7)


def test_a_file_that_was_written_to_a_pipe_has_no_length_and_is_read() -> None:
    data = bytearray(wav(as_type(tone(300), "i2")))
    struct.pack_into("<I", data, 40, 0xFFFFFFFF)
    assert len(read_sound(bytes(data))[1]) == 3200


def head(**changes: int) -> bytes:
    """A WAV file of half a second, with other numbers in its head."""
    data = bytearray(wav(as_type(tone(300, 0.5), "i2")))
    places = {"kind": (20, "<H"), "channels": (22, "<H"), "rate": (24, "<I"), "align": (32, "<H"),
              "bits": (34, "<H"), "length": (40, "<I")}  # fmt: skip
    for name, value in changes.items():
        place, form = places[name]
        struct.pack_into(form, data, place, value)
    return bytes(data)


def test_the_head_of_these_tests_is_that_of_a_file() -> None:
    same = head(kind=1, channels=1, rate=RATE, align=2, bits=16, length=8000)
    assert same[:44] == head()[:44]
    assert len(read_sound(same)[1]) == 4000


HOSTILE = {
    "cut off": (lambda: head()[:4000], "is cut off: its head says 8,000 bytes"),
    "longer than it is": (lambda: head(length=2**30), "is cut off"),
    "no samples": (lambda: head()[:36], "without samples"),
    "no length": (lambda: head(length=0), "0 s long"),
    "compressed": (lambda: head(kind=2), "kind 2 with 16 bits"),
    "many channels": (lambda: head(channels=60_000), "60000 channels"),
    "no channels": (lambda: head(channels=0), "0 channels"),
    "no rate": (lambda: head(rate=0), "0 samples a second"),
    "fast": (lambda: head(rate=2**32 - 1), "4,294,967,295 samples a second"),
    "wrong width": (lambda: head(align=3), "damaged head"),
    "strange width": (lambda: head(bits=12), "with 12 bits"),
    "a short head": (lambda: b"RIFF\0\0\0\0WAVEfmt \x04\0\0\0abcd", "damaged head"),
    "many parts": (lambda: b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 10**6, "without samples"),
    "too long": (lambda: wav(np.zeros(61 * 4000, np.uint8), 4000), "61 s long"),
    "too short": (lambda: wav(np.zeros(10, np.uint8)), "0.00125 s long"),
    "no numbers": (lambda: wav(np.full(8000, np.nan, np.float32)), "are no numbers"),
    "huge numbers": (lambda: wav(np.full(8000, 1e300)), "are no numbers"),
    "a picture": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(100), "not a WAV file"),
    "nothing": (lambda: b"", "not a WAV file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_gets_one_sentence(case: str, tmp_path: Path) -> None:
    make, sentence = HOSTILE[case]
    data = make()
    (tmp_path / "clip.wav").write_bytes(data)
    for given in (data, tmp_path / "clip.wav"):
        with pytest.raises(RivalsError, match=sentence) as caught:
            SECOND.picture(given)
        assert str(caught.value).endswith(".")


def test_nothing_is_read_of_a_file_that_says_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits and memory are checked with the head alone."""
    monkeypatch.setattr(sounds, "_samples", lambda *_: pytest.fail("samples were read"))
    for case in ("too long", "longer than it is", "fast", "many channels"):
        with pytest.raises(RivalsError):
            read_sound(HOSTILE[case][0]())
    with pytest.raises(RivalsError, match="0 is the limit; cut it"):
        read_sound(head(), memory=1000)


def test_places_that_hold_no_sound(tmp_path: Path) -> None:
    with pytest.raises(RivalsError, match="There is no sound"):
        read_sound(tmp_path / "missing.wav")
    with pytest.raises(RivalsError, match="is a folder, but a sound was expected"):
        read_sound(tmp_path)
    with pytest.raises(RivalsError, match="samples of complex128"):
        read_sound((RATE, np.zeros(8000, complex)))


# Spectrograms -------------------------------------------------------------------------------------


def test_a_spectrogram_is_that_of_scipy() -> None:
    """The same windows, as power at their tones, in decibels below the loudest band."""
    rate, samples = read_sound((16_000, tone(1000, 1.0, 16_000)))
    spectrum = signal.ShortTimeFFT(np.hanning(512), 160, rate).spectrogram(
        samples.astype(float), p0=2, p1=2 + 97, k_offset=-64
    )
    bands = SECOND._filters.T @ spectrum
    level = 10 * np.log10(np.maximum(bands / 512**2, 1e-12))
    expected = np.rint((1 + (level - level.max()) / 60).clip(0, 1) * 255)[::-1]
    assert np.abs(SECOND.picture((rate, samples)) - expected).max() <= 1


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_the_same_sound_at_another_rate_is_the_same_picture(rate: int) -> None:
    def chirp(rate: int) -> tuple[int, NDArray[np.float64]]:
        times = np.arange(rate) / rate
        return rate, np.sin(2 * np.pi * (300 + 1000 * times) * times) * np.hanning(rate)

    here, there = (SECOND.picture(chirp(each)).astype(int) for each in (rate, 16_000))
    assert here.shape == (64, 97)
    loud = there > 128
    assert np.abs(here - there)[loud].max() <= 2


def test_samples_at_another_rate_are_those_of_scipy() -> None:
    samples = np.asarray(tone(440, 0.5, 44_100), np.float32)
    np.testing.assert_allclose(resampled(samples, 8000), signal.resample(samples, 8000), atol=1e-3)
    assert resampled(samples, len(samples)) == pytest.approx(samples)


def test_loudness_does_not_matter_but_silence_is_dark() -> None:
    samples = tone(500, 1.0, 16_000)
    assert np.array_equal(SECOND.picture((16_000, samples)), SECOND.picture((16_000, samples / 8)))
    assert SECOND.picture((16_000, np.zeros(16_000))).max() == 0


def test_high_tones_are_above_low_ones() -> None:
    rows = [int(SECOND.picture((RATE, tone(pitch, 1.0))).mean(1).argmax())
            for pitch in (200, 800, 3000)]  # fmt: skip
    assert rows[0] > rows[1] > rows[2]


def test_the_loudest_part_counts_and_short_sounds_are_in_the_middle() -> None:
    loud = tone(500, 1.0, 16_000)
    noise = RNG.normal(0, 1e-4, 16_000)
    whole = np.concatenate([noise, loud, noise]).astype(np.float32)
    part = loudest(whole, 16_000, 16_000)
    assert len(part) == 16_000
    assert np.square(part).sum() > 0.99 * np.square(loud).sum()
    columns = SECOND.picture((16_000, tone(500, 0.2, 16_000))).mean(0)
    assert columns[:30].max() < columns[48] > columns[-30:].max()


def test_settings_suit_the_sounds() -> None:
    clips = [(RATE, tone(300, seconds)) for seconds in [1.0] * 9 + [1.004] * 9 + [30.0]]
    assert SoundSettings.suiting(clips).seconds == 1.0
    assert SoundSettings.suiting([(RATE, tone(300, 30.0))]).seconds == 10.0
    assert SoundSettings.suiting([b"none"]).seconds == 1.0


@pytest.mark.parametrize(
    "changes",
    [{"seconds": 1e9}, {"seconds": float("nan")}, {"rate": 0}, {"window": 10**9}, {"step": 1},
     {"bands": 2**20}, {"low": 7600}, {"high": 9000}, {"seconds": "1"}, {"other": 1},
     {"step": 600}, {"seconds": 10.0, "rate": 48_000, "step": 32, "window": 2048}],
)  # fmt: skip
def test_settings_from_a_file_are_checked(changes: dict[str, Any]) -> None:
    assert SoundSettings.checked(SECOND.to_dict()) == SECOND
    with pytest.raises(ValueError, match="sounds"):
        SoundSettings.checked(SECOND.to_dict() | changes)


# Learning -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sounds, and a model that learned them."""
    root = tmp_path_factory.mktemp("sounds")
    sound_folder(root / "tones")
    rivals.Model(root / "m").learn(root / "tones", ancestor="tiny")
    return root


@pytest.fixture
def place(taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of both, as the working folder."""
    shutil.copytree(taught, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_model_of_sounds_answers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip = as_type(tone(2100), "i2")
    Path("new.wav").write_bytes(wav(clip))
    rows = printed(["predict", "new.wav", "tones/low/0.wav", "--model", "m", "--json"], capsys)
    assert [json.loads(row)["label"] for row in rows.splitlines()] == ["high", "low"]
    model = rivals.Model("m")
    answers = model.predict([Path("new.wav"), wav(clip), (RATE, clip), "new.wav"])
    assert len({(a.label, a.confidence) for a in answers}) == 1
    sound_folder(place / "held", 5)
    assert model.test("held").accuracy == 100
    assert "100.0 %" in printed(["test", "held", "--model", "m"], capsys)


def test_a_sound_is_explained_on_its_spectrogram(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = printed(["explain", "tones/low/0.wav", "--model", "m", "--out", "heat.png"], capsys)
    assert told.startswith("tones/low/0.wav: low")
    assert Image.open("heat.png").width >= 256
    found = rivals.Model("m").explain((RATE, as_type(tone(2100), "i2")))
    assert found.label == "high"
    assert found.heat.shape == found.picture.size[::-1]


def test_how_sounds_are_read_is_part_of_the_model(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = manifest.read(Path("m")).sound
    assert found == SoundSettings(seconds=0.4)
    assert "0.4 s at 16,000 Hz, 64 mel bands" in printed(["info", "m"], capsys)
    assert "whole" in printed(["check", "m"], capsys)
    content = json.loads(Path("m/model.json").read_text())
    content["sound"]["bands"] = 10**6
    content["sha256"] = manifest.checksum(content)
    Path("m/model.json").write_text(json.dumps(content))
    said = refused(["predict", "tones/low/0.wav", "--model", "m"], capsys)
    assert "model.json has a bands of sounds that is not possible" in said


def test_sounds_and_pictures_are_not_taken_for_each_other(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("m/model.json").read_bytes()
    for name in ("red", "blue"):
        Path("colours", name).mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (20, 20), (80 * k, 0, 9)).save(f"colours/{name}/{k}.png")
    said = refused(["learn", "colours", "--model", "m"], capsys)
    assert "colours holds pictures, but the model m reads sounds" in said
    assert "colours holds pictures" in refused(["test", "colours", "--model", "m"], capsys)
    said = refused(["predict", "colours/red/0.png", "--model", "m"], capsys)
    assert "0.png is not a WAV file" in said
    with pytest.raises(RivalsError, match="but sounds are read here"):
        rivals.Model("m").predict(np.zeros((20, 20), np.uint8))
    with pytest.raises(RivalsError, match=r"0\.wav is a sound, but a picture was expected"):
        to_pixels("tones/low/0.wav", (1, 8, 8))
    shutil.copy("colours/red/0.png", "tones/low/odd.png")
    said = refused(["learn", "tones", "--name", "mixed", "--model", "m"], capsys)
    assert "both sounds and pictures" in said
    assert Path("m/model.json").read_bytes() == before
    assert "the page is for pictures" in refused(["serve", "--model", "m"], capsys)


def test_a_file_that_is_no_sound_is_left_out(place: Path) -> None:
    Path("tones/low/broken.wav").write_bytes(head()[:1000])
    Path("tones/high/song.mp3").write_bytes(b"ID3" + bytes(100))
    report = rivals.Model("m").test("tones")
    assert report.images == 16
    assert sorted(Path(path).name for path in report.left_out) == ["broken.wav", "song.mp3"]


def test_a_ticket_and_an_export_read_sounds(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: rivals[export]")
    model = rivals.Model("m")
    ticket = model.ticket("tones")
    ticket.save("ticket")
    again = rivals.Ticket.load("ticket")
    assert again.sound == ticket.sound == SoundSettings(seconds=0.4)
    assert again.predict("tones/high/1.wav").label == "high"
    assert "reads sounds" in Path("ticket/README.md").read_text()
    clips = [((RATE, tone(pitch)), name) for pitch, name in ((300, "low"), (2000, "high"))] * 4
    made = model.export("tones", "tones.onnx", images=clips)
    assert made.parity.held == 4
    assert "high" in printed(["predict", "tones/high/1.wav", "--model", "tones.onnx"], capsys)
    code = (
        "import sys; from rivals import edge; ticket = edge.load('tones.onnx')\n"
        "print(ticket.card.sound.seconds, ticket.classify('tones/high/1.wav').label,\n"
        "      [name for name in ('torch', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "0.4 high []", done.stderr


def test_pairs_of_rate_and_samples_are_a_dataset(tmp_path: Path) -> None:
    clips = [((RATE, tone(300 + 1500 * (k % 2))), k % 2) for k in range(16)]
    stream = rivals.Stream.by_classes(clips, classes=["low", "high"], size=24)
    assert stream.input_shape == (1, 24, 24)
    assert stream.sound == SoundSettings(seconds=0.4)
    assert len(stream[0].task.train) + len(stream[0].task.validation) + len(stream[0].test) == 16


def test_a_folder_of_folders_of_sounds_is_a_stream(tmp_path: Path) -> None:
    for task in ("one", "two"):
        sound_folder(tmp_path / "all" / task, 5)
    (tmp_path / "all" / "two" / "low" / "0.wav").write_bytes(wav(as_type(tone(300, 0.8), "i2")))
    stream = rivals.Stream.from_folder(tmp_path / "all", size=16)
    assert stream.input_shape == (1, 16, 16)
    assert stream.sound is not None
    assert stream.sound.seconds > 0.4  # of all tasks the longest
    assert [item.task.name for item in stream] == ["one", "two"]
    settings = {"epochs": 1, "architecture": "mlp"}
    rivals.run(stream, method="finetune", out=tmp_path / "run", settings=settings)
    ticket = rivals.Ticket.load(tmp_path / "run" / "tickets" / "two")
    assert ticket.sound == stream.sound
    assert ticket.predict(wav(as_type(tone(300), "i2"))).label in ("low", "high")
    Image.new("L", (9, 9)).save(tmp_path / "all" / "two" / "low" / "0.png")
    with pytest.raises(RivalsError, match="both sounds and pictures"):
        rivals.Stream.from_folder(tmp_path / "all")
