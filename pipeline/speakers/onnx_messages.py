"""Reads and writes the messages of which ONNX models are made, in the wire format of Protocol Buffers.

A model is a few such messages. The onnx package would be a large dependency for them.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

FLOAT, INT32, INT64 = 1, 6, 7  # TensorProto.DataType
GRAPH, OPERATORS = 7, 8  # fields of a ModelProto
NODES, NAME, TENSORS, INPUTS, OUTPUTS = 1, 2, 5, 11, 12  # fields of a GraphProto

_HIGHEST_BIT = 0x80  # of a byte: another one follows
_VARINT, _LENGTH_DELIMITED = 0, 2  # wire types
_INT_ATTRIBUTE, _INTS_ATTRIBUTE = 2, 7  # AttributeProto.AttributeType


def model(graph: bytes) -> bytes:
    """Return a model of format 8 with operators of version 14."""
    return number(1, 8) + message(GRAPH, graph) + message(OPERATORS, number(2, 14))


def node(operator: str, inputs: list[str], outputs: list[str], **attributes: int | list[int]) -> bytes:
    body = b"".join(message(1, name.encode()) for name in inputs)
    body += b"".join(message(2, name.encode()) for name in outputs)
    body += message(4, operator.encode())
    for name, value in attributes.items():
        if isinstance(value, int):
            own = number(3, value) + number(20, _INT_ATTRIBUTE)
        else:
            own = b"".join(number(8, item) for item in value) + number(20, _INTS_ATTRIBUTE)
        body += message(5, message(1, name.encode()) + own)
    return body


def tensor(name: str, value: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    sizes = b"".join(number(1, size) for size in value.shape)
    kind = FLOAT if value.dtype == np.float32 else INT64
    return sizes + number(2, kind) + message(8, name.encode()) + message(9, value.tobytes())


def float_tensors(graph: bytes) -> dict[str, Array]:
    """Return the tensors of floats that a graph carries, by their names."""
    found = {}
    for field, body in fields(graph):
        if field == TENSORS:
            assert isinstance(body, bytes)
            parts = list(fields(body))
            members = dict(parts)
            if members[2] == FLOAT:
                shape = [size for key, size in parts if key == 1 and isinstance(size, int)]
                found[bytes(members[8]).decode()] = np.frombuffer(bytes(members[9]), np.float32).reshape(shape)
    return found


def value(name: str, kind: int, shape: list[int | str]) -> bytes:
    sizes = b"".join(
        message(1, number(1, size) if isinstance(size, int) else message(2, size.encode())) for size in shape
    )
    return message(1, name.encode()) + message(2, message(1, number(1, kind) + message(2, sizes)))


def number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def message(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _LENGTH_DELIMITED) + _varint(len(value)) + value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message that has numbers and bytes alone."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        content, at = _read_varint(data, at)
        if key & 7 == _VARINT:
            yield key >> 3, content
        else:
            assert key & 7 == _LENGTH_DELIMITED
            yield key >> 3, data[at : at + content]
            at += content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _HIGHEST_BIT:
        encoded.append(value % _HIGHEST_BIT | _HIGHEST_BIT)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at this place, and the place after it."""
    value = shift = 0
    while data[at] >= _HIGHEST_BIT:
        value |= data[at] % _HIGHEST_BIT << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1
