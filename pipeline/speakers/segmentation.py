"""Finds when up to three people speak within ten seconds. They are local voices: the next window numbers them anew.

For each frame of about 17 ms the model gives the probability of each set of at most two of the three voices.

It begins with 80 filters of 251 samples, which take a third of its time. Windows overlap by half, so the samples of
several windows are filtered together. The model scales a window to a * x + b before its filters f, and takes the
highest of three magnitudes |f(a * x + b)| after them. As f is linear, that is a * |f(x) + c| with c = f(b) / a, and the
highest of three is f(x) + c of the highest f(x), or -f(x) - c of the lowest. So of the filtered samples the highest of
three is kept, and the highest of three with the other sign.
"""

from collections.abc import Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pipeline.audio import Samples
from pipeline.speakers.frames import LENGTH, STEP
from pipeline.speakers.onnx_messages import (
    FLOAT,
    GRAPH,
    INPUTS,
    NAME,
    NODES,
    OUTPUTS,
    TENSORS,
    fields,
    float_tensors,
    message,
    model,
    node,
    number,
    tensor,
    value,
)
from pipeline.speakers.weights import SEGMENTATION

Array = NDArray[np.float32]

_SETS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], np.float32)

_FILTERS = "/sincnet/conv1d.0/Concat_2_output_0"
_SCALE, _SHIFT = "ortshared_1_1_1_1_token_110", "ortshared_1_1_1_0_token_107"
_FILTERED = "/sincnet/pool1d.0/MaxPool_output_0"
_NODES_BEFORE = 7  # of the model, up to the one that gives _FILTERED
_LEAST_VARIANCE = 1e-5  # added to that of a window

_HOP, _POOL = 10, 3  # samples from one place of the filters to the next, and places of which the highest is taken
_BLOCK = 600  # places filtered at once, 1.1 s: what is between the filters and the highest stays in the cache
_ROWS = 4  # windows in one call: 16.4 ms for each, where two take 17.2 and one 21.8


class SegmentationModel:
    """The loaded model. It may be used by several threads."""

    def __init__(self) -> None:
        """Load the weights. Raises ModelUnavailable."""
        whole = SEGMENTATION.read()
        tensors = float_tensors(bytes(dict(fields(whole))[GRAPH]))
        self._filters = tensors[_FILTERS]
        self._scale, self._shift = float(tensors[_SCALE][0]), float(tensors[_SHIFT][0])
        self._first = _session(_filter_model(self._filters))
        self._rest = _session(_model_after_filters(whole, len(self._filters)))

    def __call__(self, samples: Samples, starts: Sequence[int]) -> Array:
        """Return the probability that each voice speaks in each frame of the windows that begin at these frames.

        The shape is (windows, FRAMES, VOICES). *starts* are in order and count from the first sample. Samples that a
        window lacks at its end are silence.
        """
        padded = np.zeros(starts[-1] * STEP + LENGTH, np.float32)
        padded[: len(samples)] = samples[: len(padded)]
        highest, negative = self._filter(padded)
        found = []
        for at in range(0, len(starts), _ROWS):
            some = starts[at : at + _ROWS]
            rows = np.empty((len(some), len(highest), _places(LENGTH, self._filters.shape[-1])), np.float32)
            for row, start in zip(rows, some, strict=True):
                self._write_window(row, padded, highest, negative, start)
            (log_probabilities,) = self._rest.run(None, {_FILTERED: rows})
            found.append(np.exp(log_probabilities))
        speech: Array = np.einsum("wfs,sv->wfv", np.concatenate(found), _SETS)
        return speech

    def _filter(self, samples: Samples) -> tuple[Array, Array]:
        """Return the highest of each _POOL filtered samples, and of each _POOL with the other sign.

        Both have the shape (filters, places).
        """
        count, taps = len(self._filters), self._filters.shape[-1]
        places = _places(len(samples), taps)
        highest, negative = np.empty((2, count, places), np.float32)
        for at in range(0, places, _BLOCK):
            after = min(at + _BLOCK, places)
            block = samples[at * _POOL * _HOP : (after * _POOL - 1) * _HOP + taps]
            (highest[:, at:after],), (negative[:, at:after],) = self._first.run(None, {"samples": block[None, None]})
        return highest, negative

    def _write_window(self, row: Array, samples: Samples, highest: Array, negative: Array, start: int) -> None:
        """Write into *row* what the rest of the model takes for the window from this frame."""
        own = samples[start * STEP :][:LENGTH]
        mean = own.mean(dtype=np.float64)
        scale = self._scale / np.sqrt(own.var(dtype=np.float64) + _LEAST_VARIANCE)
        offset = ((self._shift / scale - mean) * self._filters.sum(axis=(1, 2))).astype(np.float32)[:, None]
        first = start * STEP // (_HOP * _POOL)
        np.add(highest[:, first:][:, : row.shape[1]], offset, out=row)
        np.maximum(row, negative[:, first:][:, : row.shape[1]] - offset, out=row)
        row *= np.float32(scale)


def _places(samples: int, taps: int) -> int:
    return ((samples - taps) // _HOP + 1) // _POOL


def _session(contents: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # it warns of initializers that it removed
    return onnxruntime.InferenceSession(contents, sess_options=options, providers=["CPUExecutionProvider"])


def _filter_model(filters: Array) -> bytes:
    """Return a model from `samples` to `highest` and `negative`, as _filter() has them."""
    pool = {"kernel_shape": [_POOL], "strides": [_POOL]}
    nodes = [
        node("Conv", ["samples", "filters"], ["found"], kernel_shape=[filters.shape[-1]], strides=[_HOP]),
        node("MaxPool", ["found"], ["highest"], **pool),
        node("Neg", ["found"], ["negated"]),
        node("MaxPool", ["negated"], ["negative"], **pool),
    ]
    graph = b"".join(message(NODES, one) for one in nodes) + message(NAME, b"filters")
    graph += message(TENSORS, tensor("filters", filters)) + message(INPUTS, value("samples", FLOAT, [1, 1, "time"]))
    for name in ("highest", "negative"):
        graph += message(OUTPUTS, value(name, FLOAT, [1, len(filters), "places"]))
    return model(graph)


def _model_after_filters(whole: bytes, filters: int) -> bytes:
    """Return the model without what comes before _FILTERED, which is its input."""
    members = list(fields(whole))
    graph = message(INPUTS, value(_FILTERED, FLOAT, ["batch", filters, "places"]))
    nodes = 0
    for field, body in fields(bytes(dict(members)[GRAPH])):
        nodes += field == NODES
        if field != INPUTS and not (field == NODES and nodes <= _NODES_BEFORE):
            graph += _member(field, body)
    return b"".join(_member(field, graph if field == GRAPH else body) for field, body in members)


def _member(field: int, body: int | bytes) -> bytes:
    return number(field, body) if isinstance(body, int) else message(field, body)
