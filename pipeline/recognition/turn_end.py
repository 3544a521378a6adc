"""Estimates from the sound of a turn whether its speaker has finished, with the weights of smart-turn.

The model takes Whisper's features of the last eight seconds and answers with a probability. That takes 0.05 s of CPU,
so it runs on a thread of its own and never on the event loop. All sessions share one TurnEndDetector.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import onnxruntime

from pipeline.audio import RATE, Samples
from pipeline.errors import EngineFailed
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.whisper.mel import FRAMES_PER_S, LogMel
from pipeline.recognition.turn_checks import LONGEST_CHECK
from pipeline.weights import TURN_ENDS

WEIGHTS, INSTALL = TURN_ENDS, TURN_ENDS.install

WINDOW_S = LONGEST_CHECK // RATE
"""Seconds of audio that the model takes; a shorter turn is preceded by silence."""

_MELS = 80


class TurnEndModel:
    """The loaded model. It may be used by several threads."""

    def __init__(self) -> None:
        """Load the weights, which takes 0.1 s. Raises ModelUnavailable."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            WEIGHTS.read(), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name
        bootstrap.prepare()
        from faster_whisper.feature_extractor import FeatureExtractor  # noqa: PLC0415  after prepare(), as in load.py

        self._features = LogMel(FeatureExtractor(feature_size=_MELS).mel_filters)

    def __call__(self, turn: Samples) -> float:
        """Return the probability that the *turn*, which ends with a short pause, is over."""
        length = WINDOW_S * RATE
        newest = turn[-length:]
        padded = np.zeros(length, np.float32)
        padded[length - len(newest) :] = newest
        padded = (padded - padded.mean()) / np.sqrt(padded.var() + np.float32(1e-7))
        (answer,) = self._session.run(None, {self._input: self._features(padded, WINDOW_S * FRAMES_PER_S)[np.newaxis]})
        return float(answer[0, 0])


class TurnEndDetector:
    """A TurnEndModel for all sessions of one event loop: it answers one question after the other, on a thread."""

    def __init__(self) -> None:
        """Load the model. Raises ModelUnavailable."""
        self._model = TurnEndModel()
        self._thread = ThreadPoolExecutor(1, "turn ends")

    async def probability(self, turn: Samples) -> float:
        """Return the probability that *turn* is over. Raises EngineFailed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(self._model, turn))
        except Exception as error:
            raise EngineFailed(f"the end of a turn could not be found: {type(error).__name__}") from error

    def close(self) -> None:
        """Wait for the question that is being answered, and answer no more."""
        self._thread.shutdown(cancel_futures=True)
