"""What people send in place of a recording is named."""

import base64
import io

import pytest

from pipeline.errors import UndecodableAudio
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DecodeLimits

RECORDING = b"RIFF" + bytes(200)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x1f\x43\xb6\x75\x01\xff\xff\xff" + bytes(500), "a later piece of a recording"),
        (b"\0\0\0\x10moof" + bytes(500), "a later piece of a recording"),
        (b"data:audio/wav;base64," + base64.b64encode(RECORDING), "a data URL"),
        (base64.encodebytes(RECORDING), "base64 text"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><html>Not found</html>" + bytes(100), "HTML"),
        (b'{"error": "not found"}' + b" " * 100, "JSON"),
    ],
)
def test_what_is_no_recording_is_named(sent, said):
    with pytest.raises(UndecodableAudio, match=said), recording(io.BytesIO(sent), DecodeLimits()):
        pass
