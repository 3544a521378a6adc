"""Audio in, words out: decoding, voice detection, recognition and documents. It knows nothing of HTTP or storage."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
"""ONNX Runtime 1.31 keeps a device id and reports its use to its makers, unless this is set before it is imported."""
