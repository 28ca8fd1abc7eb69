"""Write and read the text and JSON files of a run folder."""

# Files are written atomically and can be read by humans. The same data gives the same bytes.

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from folkmoot.errors import StorageError
from folkmoot.files import reason_of, write_bytes, write_with
from folkmoot.json_text import replace_lone_surrogates

# A list of these values is written on a single line.
_SCALAR_TYPES = (float, int, bool, np.number, np.bool_, type(None))


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file. If the write fails, the old content remains."""
    # UTF-8 with line feeds.
    write_bytes(path, text.encode())


def write_json(path: Path, data: object) -> None:
    """Write data to a file as JSON, with keys in the given order."""
    # The data, or a value of the outermost object, may be an iterator. An iterator becomes a list
    # in the file, and only one of its items at a time is in memory. The file is replaced
    # atomically.
    write_with(path, lambda file: file.writelines(_encode_pieces(data)))


def write_content(path: Path, content: object) -> None:
    """Write `content` to a file: a text unchanged, any other content as JSON."""
    if isinstance(content, str):
        write_text(path, content)
    else:
        write_json(path, content)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises StorageError for a missing or invalid file."""
    try:
        # The standard library and not orjson, which reads integers above 64 bits as floats.
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {reason_of(error)}") from error
    except json.JSONDecodeError as error:
        raise StorageError(f"{path}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise StorageError(f"{path}: not valid JSON: nested too deeply") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises StorageError if the file holds no object."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise StorageError(f"{path}: not a JSON object")
    return data


def iterate_vectors(path: Path, member: str) -> dict[str, NDArray[np.float32]]:
    """Return the vectors in a JSON file, as a map from name to vector.

    - `member`: the key under which the file holds the object with the vectors.

    A withdrawal replaces the vectors of its texts by null. They are left out.

    Raises StorageError if the file cannot be read.
    """
    # In a file from `write_json` each vector is on one line. They are then read one by one, which
    # saves memory.
    vectors: dict[str, NDArray[np.float32]] = {}
    is_inside = False
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.startswith(b"    "):
                    is_inside = line.startswith(b"  " + orjson.dumps(member) + b": {")
                elif is_inside:
                    for name, vector in orjson.loads(b"{" + line.rstrip(b",\n ") + b"}").items():
                        if vector is not None:
                            vectors[name] = np.array(vector, dtype=np.float32)
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {reason_of(error)}") from error
    # A file with another layout is read as a whole.
    if not vectors:
        lists_by_name = read_json(path).get(member, {})
        vectors = {
            name: np.array(vector, dtype=np.float32)
            for name, vector in lists_by_name.items()
            if vector is not None
        }
    return vectors


def format_json(data: object) -> str:
    """Return data as the text of a JSON file.

    Raises ValueError for NaN and infinity. Use None in their place.
    """
    # Indented, with lists of scalars on one line and a final line feed. numpy values become plain
    # values. 32-bit floats are written with as few digits as possible. Errors name the location in
    # the data.
    text = io.BytesIO()
    # Do not collect the pieces for a join, because each piece from orjson occupies at least 4 KB.
    text.writelines(_encode_pieces(data))
    return text.getvalue().decode()


def _encode_pieces(data: object) -> Iterator[bytes]:
    # In pieces, so that the whole text is never in memory.
    if isinstance(data, Iterator):
        items = (_encode_member(value, f"$[{number}]", 2) for number, value in enumerate(data))
        yield from _join_block(b"[", items, b"]", 2)
        yield b"\n"
        return
    if not isinstance(data, Mapping) or not data:
        yield _encode_member(data, "$") + b"\n"
        return
    opening = b"{\n  "
    for key, value in data.items():
        name, path = _check_key(key, "$"), f"$.{key}"
        yield opening + orjson.dumps(_to_orjson_types(name, path)) + b": "
        opening = b",\n  "
        if isinstance(value, Iterator):
            items = (_encode_member(value, f"{path}[{i}]", 4) for i, value in enumerate(value))
            yield from _join_block(b"[", items, b"]")
        elif isinstance(value, Mapping):
            members = (
                orjson.dumps(_to_orjson_types(_check_key(key, path), path))
                + b": "
                + _encode_member(value, f"{path}.{key}", 4)
                for key, value in value.items()
            )
            yield from _join_block(b"{", members, b"}")
        else:
            yield _encode_member(value, path, 2)
    yield b"\n}\n"


def _join_block(
    opening: bytes, items: Iterator[bytes], closing: bytes, indent: int = 4
) -> Iterator[bytes]:
    first = next(items, None)
    if first is None:
        yield opening + closing
        return
    line = b"\n" + b" " * indent
    yield opening + line + first
    for item in items:
        yield b"," + line + item
    yield line[:-2] + closing


def _encode_member(data: object, path: str, indent: int = 0) -> bytes:
    text = orjson.dumps(_to_orjson_types(data, path), option=orjson.OPT_INDENT_2)
    return text.replace(b"\n", b"\n" + b" " * indent) if indent else text


def _to_orjson_types(value: object, path: str) -> object:
    # orjson then writes the format of `format_json`. `path`: the location of the value for error
    # messages.
    match value:
        case None | bool():
            return value
        case str():
            return replace_lone_surrogates(value)
        case Mapping():
            return {
                _check_key(name, path): _to_orjson_types(item, f"{path}.{name}")
                for name, item in value.items()
            }
        # Vectors are written by orjson directly, without a Python number for each element.
        case np.ndarray() if value.ndim == 1 and value.dtype.kind in "fiub":
            return _format_vector(value, path)
        case np.ndarray():
            return _to_orjson_types(value.tolist() if value.ndim == 0 else list(value), path)
        case Sequence() if not isinstance(value, (bytes, bytearray)):
            items = [_to_orjson_types(item, f"{path}[{i}]") for i, item in enumerate(value)]
            if items and all(isinstance(item, _SCALAR_TYPES) for item in value):
                return orjson.Fragment(orjson.dumps(items))
            return items
    return _check_number(value, path)


def _check_number(value: object, path: str) -> object:
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, (int, float, np.number, np.bool_)):
        raise TypeError(f"{path}: {type(value).__name__} cannot be written as JSON")
    # Python would write NaN as a word that other JSON parsers reject.
    if not math.isfinite(value):
        raise ValueError(f"{path}: {value} cannot be written as JSON; use None")
    if isinstance(value, np.float32):
        # `str` gives the shortest digits that identify the 32-bit float. `float` alone would give
        # digits of the 64-bit value.
        return float(str(value))
    number = value.item() if isinstance(value, np.generic) else value
    # orjson raises an error for integers above 64 bits.
    is_large = isinstance(number, int) and number.bit_length() > 63
    return orjson.Fragment(str(number)) if is_large else number


def _format_vector(array: NDArray[Any], path: str) -> orjson.Fragment:
    if not np.isfinite(array).all():
        raise ValueError(f"{path}: NaN or infinity cannot be written as JSON; use None")
    option = orjson.OPT_SERIALIZE_NUMPY
    return orjson.Fragment(orjson.dumps(np.ascontiguousarray(array), option=option))


def _check_key(key: object, path: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return str(key)
    raise TypeError(f"{path}: a key must be text, not {type(key).__name__}")
