"""Finds when up to three people speak within ten seconds. They are local voices: the next window numbers them anew.

For each frame of about 17 ms the model gives the probability of each set of at most two of the three voices.
"""

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pipeline.audio import Samples
from pipeline.speakers.frames import LENGTH
from pipeline.speakers.weights import SEGMENTATION

Array = NDArray[np.float32]

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

    def __call__(self, window: Samples) -> Array:
        """Return the probability that each voice speaks in each frame, (FRAMES, VOICES), of up to LENGTH samples.

        A shorter window is filled up with silence.
        """
        padded = np.zeros((1, 1, LENGTH), np.float32)
        padded[0, 0, : len(window)] = window
        (log_probabilities,) = self._session.run(None, {self._input: padded})
        sets: Array = np.exp(log_probabilities[0])
        speech: Array = np.einsum("fs,sv->fv", sets, _SETS)
        return speech
