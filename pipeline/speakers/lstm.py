"""Builds an ONNX model of an LSTM from bare weights, so that onnxruntime can run them. embedding.py calls it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pipeline.speakers.onnx_messages import (
    FLOAT,
    INPUTS,
    INT32,
    NAME,
    NODES,
    OUTPUTS,
    TENSORS,
    message,
    model,
    node,
    tensor,
    value,
)

Array = NDArray[np.float32]


def lstm_model(tensors: Mapping[str, Array], layers: int) -> bytes:
    """Return a model of stacked LSTM layers with the weights that PyTorch names `lstm.weight_ih_l0` and so on.

    The inputs are `frames` of shape (time, batch, features) and `lengths` of shape (batch), int32. The output `hidden`,
    of shape (1, batch, hidden), is the state of the last layer after each row's own number of frames.
    """
    hidden = tensors["lstm.weight_hh_l0"].shape[1]
    features = tensors["lstm.weight_ih_l0"].shape[1]
    nodes = b""
    carried = message(TENSORS, tensor("axis", np.array([1], np.int64)))
    entering = "frames"
    for layer in range(layers):
        weights = {
            f"w{layer}": _gates(tensors[f"lstm.weight_ih_l{layer}"])[None],
            f"r{layer}": _gates(tensors[f"lstm.weight_hh_l{layer}"])[None],
            f"b{layer}": np.concatenate([_gates(tensors[f"lstm.bias_{side}_l{layer}"]) for side in ("ih", "hh")])[None],
        }
        carried += b"".join(message(TENSORS, tensor(name, weight)) for name, weight in weights.items())
        last = layer == layers - 1
        outputs = ["", "hidden"] if last else [f"y{layer}"]
        nodes += message(NODES, node("LSTM", [entering, *weights, "lengths"], outputs, hidden_size=hidden))
        if not last:
            nodes += message(NODES, node("Squeeze", [f"y{layer}", "axis"], [f"x{layer}"]))
            entering = f"x{layer}"
    inputs = message(INPUTS, value("frames", FLOAT, ["time", "batch", features]))
    inputs += message(INPUTS, value("lengths", INT32, ["batch"]))
    output = message(OUTPUTS, value("hidden", FLOAT, [1, "batch", hidden]))
    return model(nodes + message(NAME, b"lstm") + carried + inputs + output)


def _gates(weights: Array) -> Array:
    """Put the gates from PyTorch's order (input, forget, cell, output) into ONNX's (input, output, forget, cell)."""
    entering, forget, cell, output = np.split(weights, 4)
    return np.concatenate([entering, output, forget, cell])
