"""Builds an ONNX model of an LSTM from bare weights, so that onnxruntime can run them. embedding.py calls it.

A model is a few messages in the wire format of Protocol Buffers. They are written by hand, because the onnx package
would be a large dependency for them.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

_FLOAT, _INT32, _INT64 = 1, 6, 7  # TensorProto.DataType
_HIGHEST_BIT = 0x80  # of a byte: another one follows
_INT_ATTRIBUTE = 2  # AttributeProto.AttributeType


def lstm_model(tensors: Mapping[str, Array], layers: int) -> bytes:
    """Return a model of stacked LSTM layers with the weights that PyTorch names `lstm.weight_ih_l0` and so on.

    The inputs are `frames` of shape (time, batch, features) and `lengths` of shape (batch), int32. The output `hidden`,
    of shape (1, batch, hidden), is the state of the last layer after each row's own number of frames.
    """
    hidden = tensors["lstm.weight_hh_l0"].shape[1]
    features = tensors["lstm.weight_ih_l0"].shape[1]
    nodes = b""
    values = _bytes(5, _tensor("axis", np.array([1], np.int64)))
    entering = "frames"
    for layer in range(layers):
        weights = {
            f"w{layer}": _gates(tensors[f"lstm.weight_ih_l{layer}"])[None],
            f"r{layer}": _gates(tensors[f"lstm.weight_hh_l{layer}"])[None],
            f"b{layer}": np.concatenate([_gates(tensors[f"lstm.bias_{side}_l{layer}"]) for side in ("ih", "hh")])[None],
        }
        for name, value in weights.items():
            values += _bytes(5, _tensor(name, value))
        last = layer == layers - 1
        outputs = ["", "hidden"] if last else [f"y{layer}"]
        nodes += _bytes(1, _node("LSTM", [entering, *weights, "lengths"], outputs, hidden_size=hidden))
        if not last:
            nodes += _bytes(1, _node("Squeeze", [f"y{layer}", "axis"], [f"x{layer}"]))
            entering = f"x{layer}"
    inputs = _bytes(11, _value("frames", _FLOAT, ["time", "batch", features]))
    inputs += _bytes(11, _value("lengths", _INT32, ["batch"]))
    output = _bytes(12, _value("hidden", _FLOAT, [1, "batch", hidden]))
    graph = nodes + _bytes(2, b"lstm") + values + inputs + output
    return _number(1, 8) + _bytes(7, graph) + _bytes(8, _number(2, 14))  # format 8, operators of version 14


def _gates(weights: Array) -> Array:
    """Put the gates from PyTorch's order (input, forget, cell, output) into ONNX's (input, output, forget, cell)."""
    entering, forget, cell, output = np.split(weights, 4)
    return np.concatenate([entering, output, forget, cell])


def _node(operator: str, inputs: list[str], outputs: list[str], **attributes: int) -> bytes:
    node = b"".join(_bytes(1, name.encode()) for name in inputs)
    node += b"".join(_bytes(2, name.encode()) for name in outputs)
    node += _bytes(4, operator.encode())
    for name, value in attributes.items():
        node += _bytes(5, _bytes(1, name.encode()) + _number(3, value) + _number(20, _INT_ATTRIBUTE))
    return node


def _tensor(name: str, value: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    sizes = b"".join(_number(1, size) for size in value.shape)
    kind = _FLOAT if value.dtype == np.float32 else _INT64
    return sizes + _number(2, kind) + _bytes(8, name.encode()) + _bytes(9, value.tobytes())


def _value(name: str, kind: int, shape: list[int | str]) -> bytes:
    sizes = b"".join(
        _bytes(1, _number(1, size) if isinstance(size, int) else _bytes(2, size.encode())) for size in shape
    )
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, sizes)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _HIGHEST_BIT:
        encoded.append(value % _HIGHEST_BIT | _HIGHEST_BIT)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
