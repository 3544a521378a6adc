"""Finds when up to three people speak within ten seconds. They are local voices: the next window numbers them anew.

For each frame of about 17 ms the model gives the probability of each set of at most two of the three voices.
"""

from collections.abc import Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pipeline.audio import Samples
from pipeline.speakers.frames import LENGTH
from pipeline.weights import SEGMENTATION

Array = NDArray[np.float32]

_ROWS = 2  # windows in one call: a sixth less CPU than one, for 18 MB; four take 64 MB for another twentieth
_SETS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], np.float32)


class SegmentationModel:
    """The loaded model. It may be used by several threads."""

    def __init__(self) -> None:
        """Load the weights. Raises ModelUnavailable."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # it warns of initializers that it removed
        self._session = onnxruntime.InferenceSession(
            SEGMENTATION.read(), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name

    def __call__(self, windows: Sequence[Samples]) -> Array:
        """Return the probability that each voice speaks in each frame of windows of up to LENGTH samples.

        The shape is (windows, FRAMES, VOICES). A shorter window is filled up with silence.
        """
        return np.concatenate([self._analyse(windows[at : at + _ROWS]) for at in range(0, len(windows), _ROWS)])

    def _analyse(self, windows: Sequence[Samples]) -> Array:
        padded = np.zeros((len(windows), 1, LENGTH), np.float32)
        for row, window in zip(padded[:, 0], windows, strict=True):
            row[: len(window)] = window
        (log_probabilities,) = self._session.run(None, {self._input: padded})
        speech: Array = np.einsum("wfs,sv->wfv", np.exp(log_probabilities), _SETS)
        return speech
