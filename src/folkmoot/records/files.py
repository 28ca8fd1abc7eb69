"""Text and JSON files of a run folder: whole or not at all, readable, the same bytes each time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folkmoot.errors import StorageError
from folkmoot.records.atomic import write_bytes, write_with

DIGITS = 7
_POWERS = np.array([10.0**k for k in range(23)])
_FLAT = (float, int, bool, type(None))


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text (UTF-8, line feeds) or leave it as it was."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, data: Any) -> None:
    """Write JSON, whole or not at all; keys stay in the order given. See `dumps`."""
    # Encoded piece by piece: a file of embeddings need not be in memory twice.
    write_with(path, lambda file: file.writelines(p.encode() for p in _file_pieces(data)))


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises StorageError that names it when it is missing or broken."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise StorageError(f"{path}: not valid JSON: {error}") from error


def dumps(data: Any) -> str:
    """JSON for a file: indented, vectors of numbers on one line, a line feed at the end.

    numpy values become plain ones; 32-bit floats are written with the 7 digits they hold. NaN
    and infinity are refused (ValueError), because JSON has neither: use None.
    """
    return "".join(_file_pieces(data))


def plain(value: Any, place: str = "$") -> Any:
    """The same data as JSON types only. Raises TypeError or ValueError that names the place."""
    match value:
        case Mapping():
            return {_key(k, place): plain(v, f"{place}.{k}") for k, v in value.items()}
        case np.ndarray():
            return _array(value, place)
        case Sequence() if not isinstance(value, (str, bytes, bytearray)):
            return [plain(v, f"{place}[{i}]") for i, v in enumerate(value)]
    return _scalar(value, place)


def round_float32(array: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The 7-digit decimals nearest to 32-bit floats, as 64-bit floats of the same shape."""
    wide = array.astype(np.float64)
    size = np.abs(wide)
    with np.errstate(divide="ignore"):
        shift = DIGITS - 1 - np.floor(np.log10(np.where(size > 0, size, 1.0))).astype(int)
    # Beyond 10^22 a power of ten is no exact double; such values do not occur in embeddings
    # and stay as they are.
    exact = (shift >= 0) & (shift < len(_POWERS))
    scale = _POWERS[np.where(exact, shift, 0)]
    return np.where(exact, np.round(wide * scale) / scale, wide)


def _file_pieces(data: Any) -> Iterator[str]:
    yield from _pieces(data, 0, "$")
    yield "\n"


def _pieces(value: Any, depth: int, place: str) -> Iterator[str]:
    # A writer of our own, because `indent` would give a vector of 512 numbers 512 lines.
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, Mapping):
        lead = "{\n"
        for key, item in value.items():
            yield f"{lead}{inner}{_text(_key(key, place))}: "
            yield from _pieces(item, depth + 1, f"{place}.{key}")
            lead = ",\n"
        yield f"\n{outer}}}" if value else "{}"
    elif isinstance(value, np.ndarray) and value.ndim == 1:
        yield json.dumps(_array(value, place), ensure_ascii=False, allow_nan=False)
    elif isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes)):
        if all(type(v) in _FLAT for v in value):
            yield json.dumps([_scalar(v, f"{place}[{i}]") for i, v in enumerate(value)])
            return
        lead = "[\n"
        for i, item in enumerate(value):
            yield lead + inner
            yield from _pieces(item, depth + 1, f"{place}[{i}]")
            lead = ",\n"
        yield f"\n{outer}]"
    else:
        yield _text(_scalar(value, place))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _scalar(value: Any, place: str) -> Any:
    if isinstance(value, float):  # np.float64 as well
        return _finite(float(value), place)
    if value is None or isinstance(value, (bool, str)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, (np.bool_, np.integer)):
        return value.item()
    if isinstance(value, int):
        return int(value)
    if isinstance(value, np.floating):
        return _finite(float(f"{float(value):.{DIGITS}g}"), place)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{place}: {type(value).__name__} cannot be written as JSON")


def _array(array: NDArray[Any], place: str) -> Any:
    if array.dtype.kind != "f":
        return plain(array.tolist(), place)
    if not np.isfinite(array).all():
        raise ValueError(f"{place}: NaN or infinity cannot be written as JSON; use None")
    return (round_float32(array) if array.dtype.itemsize <= 4 else array).tolist()


def _key(key: Any, place: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return str(key)
    raise TypeError(f"{place}: a key must be text, not {type(key).__name__}")


def _finite(value: float, place: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{place}: {value} cannot be written as JSON; use None")
    return value
