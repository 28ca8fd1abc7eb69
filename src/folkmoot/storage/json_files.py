"""Text and JSON files of a run folder: whole or not at all, readable, the same bytes each time."""

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
from folkmoot.files import write_bytes, write_with

_SCALAR_TYPES = (float, int, bool, np.number, np.bool_, type(None))


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text (UTF-8, line feeds) or leave it as it was."""
    write_bytes(path, text.encode())


def write_json(path: Path, data: object) -> None:
    """Write JSON, whole or not at all; keys stay in the order given. See `format_json`.

    The data, or a value of the outermost object, may be an iterator: its items become a list, and
    no more than one of them is in memory.
    """
    write_with(path, lambda file: file.writelines(_encode_pieces(data)))


def write_content(path: Path, content: object) -> None:
    """Write a file of a study: a text as it is, anything else as JSON."""
    if isinstance(content, str):
        write_text(path, content)
    else:
        write_json(path, content)


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises StorageError that names it when it is missing or broken."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise StorageError(f"{path}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise StorageError(f"{path}: not valid JSON: nested too deeply") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Read the object of a JSON file. Raises StorageError that names it when there is none."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise StorageError(f"{path}: not a JSON object")
    return found


def iterate_list(path: Path, member: str) -> Iterator[Any]:
    """The objects in a list of a JSON file, one after another. Of a file as `write_json` writes it,
    no more than one of them is in memory. Raises StorageError."""
    opening, lines, within = b"  " + orjson.dumps(member) + b": [\n", list[bytes](), False
    try:
        with path.open("rb") as file:
            for line in file:
                if not within:
                    within = line == opening
                elif line.startswith(b"  ]"):
                    return
                else:
                    lines.append(line)
                    if line.startswith((b"    }", b"    {}")):
                        yield orjson.loads(b"".join(lines).rstrip(b",\n"))
                        lines.clear()
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    if not within:  # laid out in another way
        yield from read_json(path).get(member, ())


def iterate_vectors(path: Path, member: str) -> dict[str, NDArray[np.float32]]:
    """The vectors by name of one member of a JSON file. As `write_json` writes it, each stands on a
    line, so that no more than one is in memory as Python's numbers. Raises StorageError."""
    found: dict[str, NDArray[np.float32]] = {}
    within = False
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.startswith(b"    "):
                    within = line.startswith(b"  " + orjson.dumps(member) + b": {")
                elif within:
                    for name, vector in orjson.loads(b"{" + line.rstrip(b",\n ") + b"}").items():
                        found[name] = np.array(vector, dtype=np.float32)
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    if not found:  # laid out in another way
        listed = read_json(path).get(member, {})
        found = {name: np.array(vector, dtype=np.float32) for name, vector in listed.items()}
    return found


def format_json(data: object) -> str:
    """JSON for a file: indented, vectors of numbers on one line, a line feed at the end.

    numpy values become plain ones; 32-bit floats are written with the fewest digits that tell
    them apart, and so read back the same. NaN and infinity are refused (ValueError), because
    JSON has neither: use None. Errors name the place.
    """
    text = io.BytesIO()
    text.writelines(_encode_pieces(data))  # not joined: orjson keeps room for 4 KB in each piece
    return text.getvalue().decode()


def to_json_types(value: object) -> object:
    """The same data as JSON types only. Raises TypeError or ValueError that names the place."""
    return json.loads(format_json(value))


def _encode_pieces(data: object) -> Iterator[bytes]:
    """The file piece by piece: the members of the outermost object's members one at a time."""
    if isinstance(data, Iterator):
        items = (_encode_member(value, f"$[{i}]", 2) for i, value in enumerate(data))
        yield from _join_block(b"[", items, b"]", 2)
        yield b"\n"
        return
    if not isinstance(data, Mapping) or not data:
        yield _encode_member(data, "$") + b"\n"
        return
    opening = b"{\n  "
    for key, value in data.items():
        name, place = _check_key(key, "$"), f"$.{key}"
        yield opening + orjson.dumps(_to_orjson_types(name, place)) + b": "
        opening = b",\n  "
        if isinstance(value, Iterator):
            items = (_encode_member(value, f"{place}[{i}]", 4) for i, value in enumerate(value))
            yield from _join_block(b"[", items, b"]")
        elif isinstance(value, Mapping):
            members = (
                orjson.dumps(_to_orjson_types(_check_key(key, place), place))
                + b": "
                + _encode_member(value, f"{place}.{key}", 4)
                for key, value in value.items()
            )
            yield from _join_block(b"{", members, b"}")
        else:
            yield _encode_member(value, place, 2)
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


def _encode_member(data: object, place: str, indent: int = 0) -> bytes:
    text = orjson.dumps(_to_orjson_types(data, place), option=orjson.OPT_INDENT_2)
    return text.replace(b"\n", b"\n" + b" " * indent) if indent else text


def _to_orjson_types(value: object, place: str) -> object:
    """What orjson writes as we want it: vectors as fragments, everything else as plain types."""
    match value:
        case None | bool():
            return value
        case str():
            # Half an emoji, cut at a token's end, is text that no file can hold.
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case Mapping():
            return {
                _check_key(key, place): _to_orjson_types(value, f"{place}.{key}")
                for key, value in value.items()
            }
        case np.ndarray() if value.ndim == 1 and value.dtype.kind in "fiub":
            return _format_vector(value, place)
        case np.ndarray():
            return _to_orjson_types(value.tolist() if value.ndim == 0 else list(value), place)
        case Sequence() if not isinstance(value, (bytes, bytearray)):
            items = [_to_orjson_types(value, f"{place}[{i}]") for i, value in enumerate(value)]
            if items and all(isinstance(value, _SCALAR_TYPES) for value in value):
                return orjson.Fragment(orjson.dumps(items))
            return items
    return _check_number(value, place)


def _check_number(value: object, place: str) -> object:
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, (int, float, np.number, np.bool_)):
        raise TypeError(f"{place}: {type(value).__name__} cannot be written as JSON")
    if not math.isfinite(value):
        raise ValueError(f"{place}: {value} cannot be written as JSON; use None")
    if isinstance(value, np.float32):
        return float(str(value))
    whole = value.item() if isinstance(value, np.generic) else value
    large = isinstance(whole, int) and whole.bit_length() > 63  # too large for orjson
    return orjson.Fragment(str(whole)) if large else whole


def _format_vector(array: NDArray[Any], place: str) -> orjson.Fragment:
    if not np.isfinite(array).all():
        raise ValueError(f"{place}: NaN or infinity cannot be written as JSON; use None")
    option = orjson.OPT_SERIALIZE_NUMPY
    return orjson.Fragment(orjson.dumps(np.ascontiguousarray(array), option=option))


def _check_key(key: object, place: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return str(key)
    raise TypeError(f"{place}: a key must be text, not {type(key).__name__}")
