"""Text and JSON files of a run folder: whole or not at all, readable, the same bytes each time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as _quoted
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from folkmoot.errors import StorageError
from folkmoot.whole_files import Draft, draft

MOST_PIECES = 4096
MOST_HELD = 1_000_000  # characters
LARGE = 64  # members of what is written member by member
_FLAT = (float, int, bool, type(None))


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text (UTF-8, line feeds) or leave it as it was."""
    text_draft(path, text).finish()


def write_json(path: Path, data: Any) -> None:
    """Write JSON, whole or not at all; keys stay in the order given. See `dumps`."""
    json_draft(path, data).finish()


def text_draft(path: Path, text: str) -> Draft:
    """`write_text` but for the last step, which syncs the file and puts it in its place."""
    return draft(path, lambda file: file.write(text.encode()))


def json_draft(path: Path, data: Any) -> Draft:
    """`write_json` but for the last step, which syncs the file and puts it in its place."""

    def write(file: IO[bytes]) -> None:
        # Encoded piece by piece: a file of embeddings need not be in memory twice.
        _Writer(lambda text: file.write(text.encode())).document(data)

    return draft(path, write)


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

    numpy values become plain ones; 32-bit floats are written with the fewest digits that tell
    them apart, and so read back the same. NaN and infinity are refused (ValueError), because
    JSON has neither: use None. Errors name the place.
    """
    return encoded(data).text + "\n"


@dataclass(frozen=True, slots=True)
class Encoded:
    """JSON made ahead, to stand as a value in what is written later."""

    text: str
    line: str  # what its lines begin with: a line feed and the indentation


def encoded(data: Any, depth: int = 0) -> Encoded:
    """The data as `dumps` has it; at once as it stands `depth` levels down in a file."""
    parts: list[str] = []
    line = "\n" + depth * "  "
    _Writer(parts.append).value(data, line)
    return Encoded("".join(parts), line)


def plain(value: Any, place: str = "$") -> Any:
    """The same data as JSON types only. Raises TypeError or ValueError that names the place."""
    match value:
        case Mapping():
            return {_key(k, place): plain(v, f"{place}.{k}") for k, v in value.items()}
        case np.ndarray():
            return _plain_array(value, place)
        case Sequence() if not isinstance(value, (str, bytes, bytearray)):
            return [plain(v, f"{place}[{i}]") for i, v in enumerate(value)]
    return _scalar(value, place)


class _Writer:
    """Writes JSON in pieces. Its own, because `indent` gives a vector of 512 numbers 512 lines."""

    def __init__(self, emit: Callable[[str], object]) -> None:
        self._emit = emit
        self._pieces: list[str] = []
        self._held = 0

    def document(self, data: Any) -> None:
        self.value(data, "\n")
        self._emit("\n")

    def value(self, data: Any, line: str) -> None:
        self._value(data, line, "$")
        self._flush()

    def _value(self, value: Any, line: str, place: str) -> None:
        kind = type(value)
        if kind is str:
            self._pieces.append(_quoted(value))
        elif (kind is dict or kind is list) and (text := _in_bulk(value)) is not None:
            self._whole(text, "\n", line)
        elif kind is Encoded:
            self._whole(value.text, value.line, line)
        elif kind is dict or isinstance(value, Mapping):
            self._object(value, line, place)
        elif kind is list or isinstance(value, (Sequence, np.ndarray)):
            self._array(value, line, place)
        else:
            self._pieces.append(_scalar_text(value, place))

    def _whole(self, text: str, made_for: str, line: str) -> None:
        """A value whose text is there; it holds no line feeds but those of its layout."""
        self._pieces.append(text if made_for == line else text.replace(made_for, line))
        self._held += len(text)
        if self._held > MOST_HELD:
            self._flush()

    def _object(self, value: Mapping[Any, Any], line: str, place: str) -> None:
        inner, add = line + "  ", self._pieces.append
        lead = "{"
        for key, item in value.items():
            add(f"{lead}{inner}{_quoted(key if type(key) is str else _key(key, place))}: ")
            self._value(item, inner, f"{place}.{key}")
            lead = ","
        add(f"{line}}}" if value else "{}")
        if len(self._pieces) > MOST_PIECES:
            self._flush()

    def _array(self, value: Any, line: str, place: str) -> None:
        if isinstance(value, (str, bytes)):
            self._pieces.append(_scalar_text(value, place))
        elif isinstance(value, np.ndarray) and value.ndim == 1:
            self._pieces.append(_array_text(value, place))
        elif all(type(v) in _FLAT for v in value):
            self._pieces.append(_flat_text(value, place))
        else:
            inner, lead = line + "  ", "["
            for i, item in enumerate(value):
                self._pieces.append(lead + inner)
                self._value(item, inner, f"{place}[{i}]")
                lead = ","
            self._pieces.append(f"{line}]")

    def _flush(self) -> None:
        self._emit("".join(self._pieces))
        self._pieces.clear()
        self._held = 0


def _in_bulk(value: Any) -> str | None:
    """The JSON of a record by orjson, or None for what only we can write, or that is too large to
    be in memory twice."""
    if len(value) > LARGE or not _bulky(value):
        return None
    try:
        return orjson.dumps(value, default=_fragment, option=orjson.OPT_INDENT_2).decode()
    except TypeError:  # lone surrogates, huge integers
        return None


def _bulky(value: Any) -> bool:
    """Whether orjson writes this the way we do: no 64-bit floats, of which it would hide NaN, and
    no list that belongs on one line."""
    kind = type(value)
    if kind is str or value is None or kind is int or kind is bool:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) is not str and not _bulky(item)):
                return False
        return True
    if kind is list:
        return not value or (type(value[0]) not in _FLAT and all(map(_bulky, value)))
    return kind is np.ndarray and value.ndim == 1 and bool(np.isfinite(value).all())


def _fragment(array: NDArray[Any]) -> orjson.Fragment:
    return orjson.Fragment(_array_text(array, ""))


def _flat_text(values: Sequence[Any], place: str) -> str:
    try:
        return json.dumps(list(values), allow_nan=False)
    except ValueError:
        return json.dumps([_scalar(v, f"{place}[{i}]") for i, v in enumerate(values)])


def _scalar_text(value: Any, place: str) -> str:
    return json.dumps(_scalar(value, place), ensure_ascii=False, allow_nan=False)


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
        return _finite(float(str(value)), place)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{place}: {type(value).__name__} cannot be written as JSON")


def _plain_array(array: NDArray[Any], place: str) -> Any:
    return json.loads(_array_text(array, place)) if array.ndim else _scalar(array[()], place)


def _array_text(array: NDArray[Any], place: str) -> str:
    """An array as JSON. By orjson, which writes 32-bit floats ten times as fast as we could."""
    if array.dtype.kind not in "fiub":
        return json.dumps(plain(array.tolist(), place), ensure_ascii=False)
    if not np.isfinite(array).all():
        raise ValueError(f"{place}: NaN or infinity cannot be written as JSON; use None")
    whole = np.ascontiguousarray(array)
    return orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY).decode()


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
