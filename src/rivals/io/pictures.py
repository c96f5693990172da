"""The one decoder of pictures: everything that reads a picture reads it here.

Learning, predicting, exported tickets, uploads, pools and official data therefore see the same
pixels and have the same limits. A picture is turned as its EXIF data says, 16 bits become 8,
transparent parts become white, and the whole picture is resized to the wanted shape without
keeping its aspect ratio. Of an animated picture the first frame is used.

What decoding will take is known from the head of a file, and is bounded before anything is decoded:
no picture takes more than `MAX_MEMORY`. A JPEG is reduced while it is decoded. A large picture of
another format is decoded, and then converted and reduced in bands.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
import warnings
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import (
    ExifTags,
    Image,
    ImageFile,
    ImageOps,
    JpegImagePlugin,
    UnidentifiedImageError,
)

from rivals.errors import RivalsError
from rivals.io.reading import printable

if TYPE_CHECKING:  # sounds are read by those alone who have some
    from rivals.io.sounds import Sound
    from rivals.io.spectrogram import SoundSettings

Shape: TypeAlias = tuple[int, int, int]  # (channels, height, width)

# The formats that are read, with a file name suffix for each. Pillow knows more formats, but it
# starts other programs for some of them.
FORMATS = {
    "PNG": ".png", "JPEG": ".jpg", "MPO": ".jpg", "BMP": ".bmp", "DIB": ".dib", "GIF": ".gif",
    "TIFF": ".tif", "WEBP": ".webp", "PPM": ".ppm", "AVIF": ".avif", "JPEG2000": ".jp2",
    "ICO": ".ico", "TGA": ".tga", "PCX": ".pcx", "SGI": ".sgi", "XBM": ".xbm", "QOI": ".qoi",
}  # fmt: skip
MAX_PIXELS = 80_000_000  # checked before decoding: a tiny file can claim any size
MAX_SIDE = 30_000  # pixels
MAX_FILE = 100_000_000  # bytes; some decoders read the whole file
MAX_ICON_SIDE = 1024  # of a picture inside an ICO file
MAX_MEMORY = 220_000_000  # bytes that decoding a picture may take, beside the file
DECODED = 4  # bytes a pixel, in all modes at most
# Formats whose decoders hold more than that: several copies, or more bits. As measured.
BYTES_PER_PIXEL = {"WEBP": 16, "AVIF": 15, "JPEG2000": 25, "QOI": 8, "SGI": 8}
CONVERTED = 20  # bytes for a pixel on its way to the mode that is wanted
LARGE = 4_000_000  # pixels; larger pictures are reduced before they are resized
BAND = 500_000  # pixels of them that are converted at once
MODES = {1: "L", 3: "RGB"}  # channels: mode of pillow
ADVICE = "use PNG, JPEG or another common format"
TOLERANCE = 1e-6  # how far floats may leave 0 … 1


class _MemoryLimitError(Exception):
    """Decoding would take too much; the argument says what, and what is the limit."""


class TensorLike(Protocol):
    """A torch tensor, without importing torch."""

    def detach(self) -> Any: ...


PictureFile: TypeAlias = str | os.PathLike[str] | bytes
Picture: TypeAlias = PictureFile | Image.Image | NDArray[Any] | TensorLike


def to_pixels(
    picture: Picture | Sound,
    shape: Shape,
    scale: float = 255.0,
    name: str = "",
    memory: int = MAX_MEMORY,
    sound: SoundSettings | None = None,
) -> NDArray[np.uint8]:
    """Decode any picture, or a sound as a picture, to uint8 pixels of the given shape.

    Args:
        picture: A path, the bytes of a picture file, a PIL image, a numpy array or a torch tensor.
            Arrays are (height, width), (height, width, channels) or (channels, height, width)
            with 1, 3 or 4 channels, as uint8 from 0 to 255 or floats from 0 to 1. Where both
            orders are possible, an array that has the wanted shape and any tensor have their
            channels first, and other arrays have them last.
        shape: The wanted (channels, height, width), with 1 or 3 channels.
        scale: The value of white in the result.
        name: What error messages call the picture; by default its path, or "The picture".
        memory: Bytes that decoding a file may take, beside the file itself.
        sound: How sounds are read, where `picture` is one: a path, the bytes of a WAV file, or
            (rate, samples).

    Returns:
        uint8 pixels (channels, height, width).
    """
    channels, height, width = shape
    if sound is not None:
        picture = sound.picture(_as_sound(picture, name), name, memory)
    if isinstance(picture, str | os.PathLike | bytes):
        check_channels(channels, name or source_name(picture))
        with open_picture(picture, name) as opened:
            opened.draft(None, (2 * width, 2 * height))
            return fit(opened, shape, scale, memory)
    name = name or "The picture"
    check_channels(channels, name)
    image = picture if isinstance(picture, Image.Image) else _from_array(picture, shape, name)
    _check_size(image, name)
    with _errors_in_words(name, "", ADVICE):
        return fit(image, shape, scale)


def to_shown(picture: Picture, shape: Shape, longest: int) -> Image.Image:
    """Any picture in RGB to be looked at: upright, as wide and high as it is, but at most `longest`
    pixels a side. The shape says in which order an array has its channels, as for `to_pixels`."""
    enough = (longest, longest)
    if isinstance(picture, str | os.PathLike | bytes):
        with open_picture(picture) as opened:
            opened.draft(None, enough)
            plain = upright(opened, "RGB", enough)
    else:
        name = "The picture"
        image = picture if isinstance(picture, Image.Image) else _from_array(picture, shape, name)
        _check_size(image, name)
        with _errors_in_words(name, "", ADVICE):
            plain = upright(image, "RGB", enough)
    plain.thumbnail(enough)
    return plain


def picture_size(picture: Picture) -> tuple[int, int]:
    """Width and height of a picture, without decoding a file."""
    if isinstance(picture, str | os.PathLike | bytes):
        with open_picture(picture) as opened:
            return opened.width, opened.height
    if isinstance(picture, Image.Image):
        return picture.width, picture.height
    _, height, width = array_shape(np.asarray(picture), "The picture")
    return width, height


@contextlib.contextmanager
def open_picture(
    source: PictureFile,
    name: str = "",
    formats: Sequence[str] = tuple(FORMATS),
    advice: str = ADVICE,
) -> Iterator[Image.Image]:
    """Open a picture file or its bytes; every problem, also in the block, is a RivalsError.

    Args:
        source: A path, or the bytes of a picture file.
        name: What error messages call the picture; by default its path, or "The picture".
        formats: The formats that are accepted; see `FORMATS`.
        advice: The end of the error message: what to do if it cannot be decoded.
    """
    name = name or source_name(source)
    kind = f"{formats[0]} " if len(formats) == 1 else ""
    with _errors_in_words(name, kind, advice), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with open_regular(source) as file:
            if is_wav(file.read(12)):
                raise RivalsError(f"{name} is a sound, but a picture was expected.")
            file.seek(0)
            _check_icon(file)
            with _identified(file, formats) as picture:
                _check_size(picture, name)
                yield picture


def _identified(file: IO[bytes], formats: Sequence[str]) -> Image.Image:
    """Open a file in one of the formats; the modules of rare formats are imported for them alone.

    Pillow has more than forty, which take time and memory. A format that it was built without must
    not be named.
    """
    Image.preinit()
    with contextlib.suppress(UnidentifiedImageError):
        return Image.open(file, "r", [each for each in formats if each in Image.OPEN])
    Image.init()
    return Image.open(file, "r", [each for each in formats if each in Image.OPEN])


def upright(
    picture: Image.Image, mode: str, enough: tuple[int, int], memory: int = MAX_MEMORY
) -> Image.Image:
    """A copy, turned as its EXIF data says, with 8 bits a channel and without transparency.

    A large picture is reduced, so that the copy has at least the width and height `enough`.
    """
    _check_memory(picture, memory)
    orientation = picture.getexif().get(ExifTags.Base.Orientation, 1)
    wide, high = enough if orientation < 5 else enough[::-1]  # from 5 on a quarter turn
    across, down = 1, 1
    if picture.width * picture.height > LARGE:
        across, down = max(1, picture.width // wide), max(1, picture.height // high)
    copy = _converted(picture, mode, across, down)
    copy.getexif()[ExifTags.Base.Orientation] = orientation
    return ImageOps.exif_transpose(copy)


def _converted(picture: Image.Image, mode: str, across: int, down: int) -> Image.Image:
    """The whole picture in `mode`, reduced by whole numbers. Only a band is in memory twice."""
    if (across, down) == (1, 1):
        return _plain(picture, mode)
    rows = down * max(1, BAND // (picture.width * down))
    copy = Image.new(mode, (-(-picture.width // across), -(-picture.height // down)))
    for top in range(0, picture.height, rows):
        band = picture.crop((0, top, picture.width, min(top + rows, picture.height)))
        copy.paste(_plain(band, mode).reduce((across, down)), (0, top // down))
    return copy


def _plain(picture: Image.Image, mode: str) -> Image.Image:
    """A copy in `mode`: 8 bits a channel, and white where it is transparent."""
    if picture.mode.startswith("I"):  # 16 bits, of which pillow would keep the lowest 8
        deep = np.asarray(picture).clip(0, 65535)
        picture = Image.fromarray((deep // 257).astype(np.uint8))
    elif picture.mode == "F":
        raise ValueError("float pixels in a file have no defined white")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    if mode == "L" and picture.mode not in ("L", "1"):
        picture = picture.convert("RGB")  # palettes and CMYK cannot become grey directly
    return picture.convert(mode)


def check_channels(channels: int, name: str) -> None:
    if channels not in MODES:
        raise RivalsError(
            f"{name} cannot be used: the ticket takes {channels} channels, and a picture has 1 or "
            "3; give `scores` an array."
        )


def fit(
    picture: Image.Image, shape: Shape, scale: float = 255.0, memory: int = MAX_MEMORY
) -> NDArray[np.uint8]:
    """The pixels of a picture that is open, resized to `shape`."""
    channels, height, width = shape
    plain = upright(picture, MODES[channels], (2 * width, 2 * height), memory)
    if plain.size != (width, height):
        plain = plain.resize((width, height), Image.Resampling.BILINEAR)
    values = np.asarray(plain, np.uint8)
    if scale != 255:  # the ticket was trained on images whose white is another number
        values = np.rint(values * (scale / 255)).astype(np.uint8)
    # (height, width[, 3]) → (channels, height, width)
    channels_last = values[..., None] if values.ndim == 2 else values
    return np.array(np.moveaxis(channels_last, -1, 0), order="C")


def source_name(source: PictureFile) -> str:
    return "The picture" if isinstance(source, bytes) else printable(os.fspath(source))


def _check_size(picture: Image.Image, name: str) -> None:
    if max(picture.size) > MAX_SIDE:
        raise RivalsError(
            f"{name} is {picture.width}×{picture.height} pixels, but a side may have at most "
            f"{MAX_SIDE:,}; cut it, or make it smaller."
        )
    if picture.width * picture.height > MAX_PIXELS:
        raise _too_large(name)


def _too_large(name: str) -> RivalsError:
    return RivalsError(
        f"{name} has more than {MAX_PIXELS // 10**6} million pixels, which is the limit; "
        "make it smaller."
    )


def _check_memory(picture: Image.Image, memory: int) -> None:
    """Refuse a file that would take more than `memory` bytes when it is decoded."""
    if not isinstance(picture, ImageFile.ImageFile):
        return
    pixels = picture.width * picture.height
    needed: float = CONVERTED * (pixels if pixels <= LARGE else BAND)
    needed += pixels * BYTES_PER_PIXEL.get(str(picture.format), DECODED)
    if picture.tile and isinstance(picture, JpegImagePlugin.JpegImageFile):
        needed += pixels * _coefficients(picture)
    elif hasattr(picture, "tag_v2"):
        needed += _largest_piece(picture)
    if needed > memory:
        raise _MemoryLimitError(f"{needed / 1e6:,.0f} MB of memory, but {memory / 1e6:,.0f}")


def _largest_piece(picture: Any) -> float:
    """Bytes of a strip or tile of a TIFF, which is decoded at once; it may exceed the picture."""
    from PIL import TiffImagePlugin  # here: it takes 1 MB, and exported files are run in few

    tags = picture.tag_v2
    rows = min(tags.get(TiffImagePlugin.ROWSPERSTRIP, picture.height), picture.height)
    across, down = tags.get(TiffImagePlugin.TILEWIDTH), tags.get(TiffImagePlugin.TILELENGTH)
    piece = across * down if across and down else picture.width * rows
    bits = max(tags.get(TiffImagePlugin.BITSPERSAMPLE, (8,)))
    samples = tags.get(TiffImagePlugin.SAMPLESPERPIXEL, 1)
    return float(piece * max(DECODED, samples * bits / 8))


def _coefficients(picture: JpegImagePlugin.JpegImageFile) -> float:
    """Bytes a pixel of the reduced picture that libjpeg takes before the first pixel is there.

    It takes 2 for every value of a picture that comes in several scans, as progressive ones do, and
    a picture that is reduced while it is decoded has all of its values.
    """
    if not _in_several_scans(picture):
        return 0
    reduced = (getattr(picture, "decoderconfig", None) or (1,))[0]
    values = [across * down for _, across, down, _ in picture.layer]
    most = max(across for _, across, _, _ in picture.layer) * max(
        down for _, _, down, _ in picture.layer
    )
    return float(2 * reduced**2 * sum(values) / most)


def _in_several_scans(picture: JpegImagePlugin.JpegImageFile) -> bool:
    """Whether the first scan lacks something; also where the file is unusual."""
    if picture.info.get("progressive") or picture.fp is None:
        return True
    picture.fp.seek(2)
    while True:
        head = picture.fp.read(4)  # 255, the kind of a segment, its length
        if len(head) < 4 or head[0] != 0xFF or not 0xC0 <= head[1] < 0xFF:
            return True
        if head[1] == 0xDA:  # the first scan; the number of its layers is the next byte
            return picture.fp.read(1) != bytes([picture.layers])
        picture.fp.seek(int.from_bytes(head[2:], "big") - 2, os.SEEK_CUR)


def _check_icon(file: IO[bytes]) -> None:
    """Refuse an ICO file that holds more than icons.

    Pillow decodes it when it is opened, and the list in it says nothing: the pictures inside do.
    """
    if file.read(4) == b"\0\0\1\0":
        for number in range(int.from_bytes(file.read(2), "little")):
            file.seek(6 + 16 * number + 12)
            file.seek(int.from_bytes(file.read(4), "little"))
            head = file.read(24)
            is_png = head.startswith(b"\x89PNG")
            sides = struct.unpack(*((">II", head[16:]) if is_png else ("<II", head[4:12])))
            if max(sides) > MAX_ICON_SIDE:
                raise ValueError(f"an icon of {max(sides)} pixels")
    file.seek(0)


@contextlib.contextmanager
def _errors_in_words(name: str, kind: str, advice: str) -> Iterator[None]:
    try:
        yield
    except RivalsError:
        raise
    except FileNotFoundError as error:
        raise RivalsError(f"There is no picture {name}.") from error
    except IsADirectoryError as error:
        raise RivalsError(f"{name} is a folder, but a picture was expected.") from error
    except PermissionError as error:
        raise RivalsError(f"{name} cannot be read ({error.strerror}).") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(name) from error
    except _MemoryLimitError as error:
        raise RivalsError(
            f"{name} takes {error} is the limit; make it smaller, or save it as a JPEG that is "
            "not progressive."
        ) from error
    except UnidentifiedImageError as error:
        raise RivalsError(f"{name} is not a {kind}picture that can be read; {advice}.") from error
    except Exception as error:  # damaged files make pillow raise nearly anything
        cut = isinstance(error, OSError) and error.errno is None  # pillow's word for it
        why = "damaged or cut off" if cut else type(error).__name__
        raise RivalsError(
            f"{name} is not a {kind}picture that can be read ({why}); {advice}."
        ) from error


def is_wav(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a sound."""
    return head[:4] == b"RIFF" and head[8:12] == b"WAVE"


def _as_sound(given: Any, name: str) -> Sound:
    """What a sound can be read from; a picture is refused."""
    if isinstance(given, str | os.PathLike | bytes | tuple):
        return given
    raise RivalsError(
        f"{name or 'The sound'} is of type {type(given).__name__}, but sounds are read here: give "
        "the path or the bytes of a WAV file, or (rate, samples)."
    )


def open_regular(source: PictureFile, kind: str = "picture") -> io.BytesIO | io.BufferedReader:
    """The bytes of a picture or a sound. Pipes and devices are not opened: they could block."""
    if isinstance(source, bytes):
        return io.BytesIO(source)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if os.name == "nt" and os.path.isdir(source):  # Windows opens no folders
        raise IsADirectoryError
    number = os.open(source, flags)
    found = os.fstat(number)
    if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_FILE:
        return os.fdopen(number, "rb")
    os.close(number)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError
    if stat.S_ISREG(found.st_mode):
        raise RivalsError(
            f"{source_name(source)} has {found.st_size / 1e6:,.0f} MB, but the file of a {kind} "
            f"may have at most {MAX_FILE / 1e6:.0f} MB; make it smaller."
        )
    raise ValueError("it is not a regular file")


def _from_array(picture: Any, shape: Shape, name: str) -> Image.Image:
    """An array or a tensor as an image of 8 bits a channel."""
    is_tensor = not isinstance(picture, np.ndarray)
    if isinstance(picture, np.ndarray):
        array = picture
    elif hasattr(picture, "detach"):
        array = np.asarray(picture.detach().cpu())
    else:
        raise RivalsError(
            f"{name} is of type {type(picture).__name__}, but a path, bytes, a PIL image, an array "
            "or a tensor was expected."
        )
    found = f"{name} is an array of {array.dtype} {array.shape}"
    channels = (1, 3, 4)
    if array.ndim == 3:
        first = is_tensor or array.shape == shape or array.shape[-1] not in channels
        if first and array.shape[0] in channels:
            array = np.moveaxis(array, 0, -1)
    if array.ndim not in (2, 3) or array.size == 0 or (array.shape[2:] or (1,))[0] not in channels:
        advice = "give a list of pictures" if array.ndim == 4 else "change its shape"
        raise RivalsError(
            f"{found}, but (height, width), (height, width, channels) or (channels, height, width) "
            f"with 1, 3 or 4 channels was expected; {advice}."
        )
    array = as_bytes(array, found)
    return Image.fromarray(
        np.ascontiguousarray(array[..., 0] if array.shape[2:] == (1,) else array)
    )


def as_bytes(values: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """Pixels from 0 to 255, of bytes or of floats from 0 to 1; `name` begins the error message."""
    if values.dtype == np.uint8:
        return values
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if values.dtype.kind == "f":
        if not (low >= -TOLERANCE and high <= 1 + TOLERANCE):  # also where they are not numbers
            raise RivalsError(
                f"{name} with values from {low:g} to {high:g}, but floats must lie between 0 and "
                "1; divide them by their largest possible value, or use uint8."
            )
        scaled: NDArray[np.uint8] = np.rint(values.astype(np.float64).clip(0, 1) * 255).astype("u1")
        return scaled
    if values.dtype.kind in "iu" and low >= 0 and high <= 255:
        return values.astype(np.uint8)
    raise RivalsError(
        f"{name}, but uint8 from 0 to 255 or floats from 0 to 1 were expected; convert it."
    )


def array_shape(values: NDArray[Any], what: str, batch: bool = False) -> Shape:
    """(channels, height, width) of an array of pixels, or of a batch of them."""
    shape = values.shape[1:] if batch else values.shape
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 3 and shape[0] in MODES:
        return shape
    if len(shape) == 3 and shape[2] in MODES:
        return (shape[2], shape[0], shape[1])
    raise RivalsError(
        f"{what} has the shape {shape}, but (height, width), (height, width, channels) or "
        "(channels, height, width) with 1 or 3 channels was expected."
    )


def channels_first(values: NDArray[np.uint8], batch: bool = False) -> NDArray[np.uint8]:
    """An array of pixels, or a batch of them, as (…, channels, height, width)."""
    channels, height, width = array_shape(values, "A picture", batch)
    if values.shape[-3:] == (channels, height, width) and values.ndim == 3 + batch:
        return values
    if values.ndim == 2 + batch:
        return np.expand_dims(values, -3)
    return np.moveaxis(values, -1, -3)
