"""Finds the two models of voices: one in a package that `scripts/setup` installs, one in this folder."""

from pathlib import Path

from pipeline.packaged import read_checked

ENCODER = Path(__file__).with_name("encoder.onnx")
"""A GE2E voice encoder, Apache-2.0: what a voice sounds like, as 256 numbers. scripts/convert_encoder.py made it."""

_ENCODER_SHA256 = "ed3cccc76fb9fb75656f4df2de8073d07733b3f1e29c1bc31a085335effc99c6"


def read_encoder() -> bytes:
    """Return the bytes of ENCODER. Raises ModelUnavailable if it is missing or has other bytes than it should."""
    return read_checked(ENCODER, _ENCODER_SHA256, "install Scribewire again")
