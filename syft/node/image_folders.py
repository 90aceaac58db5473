"""A folder of images, with a folder in it for each class, as a tensor of images and one of labels.

Pillow decodes them (the extra ``worker``), and of its formats only those that are images and
nothing else: EPS, for one, starts another program.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from syft.exceptions import FileRefused
from syft.federated.columns import Column, ColumnKind, Columns
from syft.node.table_files import ReadTable

FORMATS: Final = ("PNG", "JPEG", "BMP", "TIFF", "GIF", "PPM", "WEBP")
_LEFT_ALONE: Final = frozenset(("thumbs.db", "desktop.ini"))
"""What systems write into folders, besides files whose names begin with a point."""

_MODES: Final = {
    "1": "L",
    "L": "L",
    "P": "RGB",
    "RGB": "RGB",
    "YCbCr": "RGB",
    "I;16": "I",
    "I;16B": "I",
    "I": "I",
    "F": "F",
}
"""What each mode of Pillow's becomes: bytes of one grey or three colours, int32 or float32."""


def read_image_folder(path: Path, size: tuple[int, int] | None = None) -> ReadTable:
    """Read ``path/CLASS/*.png``: images ``[n, channels, height, width]`` and the numbers of their
    classes, which are in the order of their names; images in that of theirs.

    Images of 8 bits are uint8, of 16 bits int32, of floats float32.  With ``size`` (height, width)
    all are scaled to it.

    Raises :class:`~syft.exceptions.FileRefused` for images that differ in size or colours, for one
    with transparency or several pictures, and for what is no image.
    """
    classes = _classes(path)
    files = [(number, file) for number, name in enumerate(classes) for file in _images(path / name)]
    images: list[np.ndarray[Any, Any]] = []
    for _, file in files:
        image = _decoded(file, size)
        if images and (image.shape, image.dtype) != (images[0].shape, images[0].dtype):
            problem = f"it is {_words(image)}, and {str(files[0][1])!r} is {_words(images[0])}"
            instead = "give all images one size and as many colours, or say a size (image_size)"
            raise FileRefused(str(file), problem, instead)
        images.append(image)
    label = Column("class", ColumnKind.CATEGORY, categories=tuple(classes))
    targets = torch.tensor([number for number, _ in files], dtype=torch.int64, device="cpu")
    return ReadTable(torch.from_numpy(np.stack(images)), targets, Columns((), label))


def _classes(path: Path) -> list[str]:
    """The names of the folders, beside which nothing else may be."""
    found = list(_visible(path))
    for one in found:
        if not one.is_dir():
            problem = f"{one.name!r} is beside the folders of the classes"
            raise FileRefused(str(path), problem, "put it into one of them, or elsewhere")
    if not found:
        raise FileRefused(str(path), "no folders are in it", "make a folder for each class")
    return [one.name for one in found]


def _images(folder: Path) -> list[Path]:
    files = list(_visible(folder))
    if not files:
        raise FileRefused(str(folder), "no image is in it", "put images into it, or remove it")
    return files


def _visible(path: Path) -> Iterator[Path]:
    """What is in a folder, by name, without what systems write there."""
    for one in sorted(path.iterdir()):
        if not one.name.startswith(".") and one.name.lower() not in _LEFT_ALONE:
            yield one


def _decoded(file: Path, size: tuple[int, int] | None) -> np.ndarray[Any, Any]:
    """An image as an array ``[channels, height, width]``."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        problem = "the package pillow, which reads images, is not installed"
        raise FileRefused(str(file), problem, "pip install 'syft-chain[worker]'") from None
    try:
        with Image.open(file, formats=FORMATS) as opened:
            if getattr(opened, "n_frames", 1) > 1:
                raise FileRefused(str(file), "several pictures are in it", "save one alone")
            mode = _MODES.get(opened.mode)
            if mode is None or "transparency" in opened.info:
                problem = f"it has transparency, or colours of another kind ({opened.mode})"
                raise FileRefused(str(file), problem, "save it in grey or in three colours")
            image = ImageOps.exif_transpose(opened).convert(mode)
        if size is not None:
            image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    except UnidentifiedImageError:
        problem = f"it is no image of {', '.join(FORMATS)}"
        raise FileRefused(str(file), problem, "put images alone into the folders") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        problem = f"it is damaged ({type(error).__name__}: {str(error)[:200]})"
        raise FileRefused(str(file), problem, "save it anew") from error
    pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _words(image: np.ndarray[Any, Any]) -> str:
    channels, height, width = image.shape
    colours = "one colour" if channels == 1 else "three colours"
    return f"{width} wide and {height} high, {colours} of {image.dtype}"
