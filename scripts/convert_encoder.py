"""Makes pipeline/speakers/encoder.onnx from the voice encoder of Resemblyzer. Its output is in the repository.

    python -m venv /tmp/convert && /tmp/convert/bin/pip install onnx==1.23.2 numpy
    /tmp/convert/bin/pip download --no-deps Resemblyzer==0.1.4 -d /tmp/convert
    /tmp/convert/bin/python scripts/convert_encoder.py /tmp/convert/Resemblyzer-0.1.4-py3-none-any.whl

The package onnx is needed here alone. The weights are stored as 16-bit floats, which halves the file and moves no
embedding by more than a cosine distance of 0.00004. If the digest that is printed changes, change it in
pipeline/speakers/models.py too.
"""

import argparse
import hashlib
import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper  # type: ignore[import-not-found, unused-ignore]

MEMBER = "resemblyzer/pretrained.pt"
SHA256 = "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"
TARGET = Path(__file__).resolve().parents[1] / "pipeline" / "speakers" / "encoder.onnx"
LAYERS, HIDDEN, MELS = 3, 256, 40

Array = NDArray[np.float32]


class _TensorUnpickler(pickle.Unpickler):
    """Reads a table of tensors. Any other object raises pickle.UnpicklingError."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("torch._utils", "_rebuild_tensor_v2"): lambda key, offset, shape, *_: (key, offset, shape),
            ("torch", "FloatStorage"): "float",
            ("collections", "OrderedDict"): OrderedDict,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a table of tensors")
        return known[module, name]

    def persistent_load(self, pid: Any) -> str:
        return str(pid[2])  # the key of the storage


def read_tensors(data: bytes) -> dict[str, Array]:
    """Return the tensors of the model by name, from PyTorch's format before 1.6.

    It has four pickles, the last of which has the tensors, a fifth with the keys of storages, and then for each key a
    length and so many floats.
    """
    file = io.BytesIO(data)
    for _ in range(3):
        pickle.load(file)  # noqa: S301  the digest of these bytes was compared
    tensors = _TensorUnpickler(file).load()["model_state"]
    storages = {}
    for key in pickle.load(file):  # noqa: S301  as above
        length = int.from_bytes(file.read(8), "little")
        storages[key] = np.frombuffer(file.read(4 * length), np.float32)
    return {
        name: storages[key][offset : offset + int(np.prod(shape))].reshape(shape)
        for name, (key, offset, shape) in tensors.items()
    }


def gates(weights: Array) -> Array:
    """Put the gates from PyTorch's order (input, forget, cell, output) into ONNX's (input, output, forget, cell)."""
    entering, forget, cell, output = np.split(weights, 4)
    return np.concatenate([entering, output, forget, cell])


def encoder(tensors: dict[str, Array]) -> bytes:
    """Return the model: an LSTM of three layers, and a linear layer of the last state.

    The inputs are `frames` of shape (time, batch, 40), and `lengths` of shape (batch), int32: the frames of each row.
    The output is `embeddings`, (batch, 256), not negative and not yet of length 1.
    """
    axes = {"zero": np.array([0], np.int64), "one": np.array([1], np.int64)}
    nodes, values = [], [numpy_helper.from_array(value, name) for name, value in axes.items()]

    def constant(name: str, value: Array) -> str:
        values.append(numpy_helper.from_array(value.astype(np.float16), f"{name}_16"))
        nodes.append(helper.make_node("Cast", [f"{name}_16"], [name], to=TensorProto.FLOAT))
        return name

    entering = "frames"
    for layer in range(LAYERS):
        into, back, *biases = (
            gates(tensors[f"lstm.{name}_l{layer}"]) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        weights = [
            constant(f"w{layer}", into[None]),
            constant(f"r{layer}", back[None]),
            constant(f"b{layer}", np.concatenate(biases)[None]),
        ]
        outputs = [f"all{layer}", f"last{layer}"]
        nodes.append(helper.make_node("LSTM", [entering, *weights, "lengths"], outputs, hidden_size=HIDDEN))
        nodes.append(helper.make_node("Squeeze", [f"all{layer}", "one"], [f"frames{layer}"]))
        entering = f"frames{layer}"
    nodes.append(helper.make_node("Squeeze", [f"last{LAYERS - 1}", "zero"], ["state"]))
    linear = ["state", constant("weight", tensors["linear.weight"]), constant("bias", tensors["linear.bias"])]
    nodes.append(helper.make_node("Gemm", linear, ["projected"], transB=1))
    nodes.append(helper.make_node("Relu", ["projected"], ["embeddings"]))
    inputs = [
        helper.make_tensor_value_info("frames", TensorProto.FLOAT, ["time", "batch", MELS]),
        helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
    ]
    embeddings = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", HIDDEN])
    graph = helper.make_graph(nodes, "encoder", inputs, [embeddings], values)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 14)])
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    with zipfile.ZipFile(parser.parse_args().wheel) as wheel:
        weights = wheel.read(MEMBER)
    if hashlib.sha256(weights).hexdigest() != SHA256:
        raise SystemExit(f"{MEMBER} is another file than that of Resemblyzer 0.1.4")
    model = encoder(read_tensors(weights))
    TARGET.write_bytes(model)
    print(f"{TARGET}: {len(model)} bytes, SHA-256 {hashlib.sha256(model).hexdigest()}")


if __name__ == "__main__":
    main()
