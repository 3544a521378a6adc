# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "livekit-agents==1.8.9",
#     "livekit-plugins-deepgram==1.8.9",
#     "livekit-plugins-openai==1.8.9",
#     "pipecat-ai[deepgram,openai]==1.14.0",
#     "soundfile",
# ]
# ///
"""Speaks a recording to a running server through LiveKit's and Pipecat's own services, and prints what they return.

For those who change server/dialects/openai or server/dialects/deepgram: the tests only play the messages of these two
frameworks, because their packages take 600 MB. The account must be allowed four live sessions at once.

    uv run scripts/clients.py http://127.0.0.1:8000 data/operator-key tests/speech/human/jfk.flac
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import soundfile
from livekit.agents import stt, utils
from livekit.plugins import deepgram, openai
from livekit.rtc import AudioFrame
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.services.openai.stt import OpenAIRealtimeSTTService, OpenAISTTService
from pipecat.workers.runner import WorkerRunner

FRAME_S = 0.02
PAUSE_S = 2.0  # after the recording, so that its last words become final


class Recording:
    """Mono audio of 16 bits, in frames."""

    def __init__(self, path: Path) -> None:
        samples, self.rate = soundfile.read(path, dtype="int16", always_2d=True)
        self._data = samples[:, 0].tobytes()

    def frames(self) -> list[bytes]:
        step, data = 2 * round(FRAME_S * self.rate), self._data
        return [data[at : at + step] for at in range(0, len(data), step)]

    async def frames_in_real_time(self) -> AsyncIterator[bytes]:
        """Yield the recording and a pause at the speed of speech."""
        begun, pause = time.monotonic(), [bytes(2 * round(FRAME_S * self.rate))] * round(PAUSE_S / FRAME_S)
        for number, frame in enumerate(self.frames() + pause):
            await asyncio.sleep(begun + number * FRAME_S - time.monotonic())
            yield frame


async def livekit_stream(service: stt.STT, recording: Recording) -> str:
    """Return the finals of a stream of LiveKit's."""
    finals: list[str] = []

    async def listen() -> None:
        final = stt.SpeechEventType.FINAL_TRANSCRIPT
        finals.extend([event.alternatives[0].text async for event in stream if event.type == final])

    async with service, service.stream() as stream:
        listening = asyncio.create_task(listen())
        async for data in recording.frames_in_real_time():
            if listening.done():
                await listening  # it failed, and says why
            stream.push_frame(AudioFrame(data, recording.rate, 1, len(data) // 2))
        stream.end_input()
        await asyncio.wait([listening], timeout=PAUSE_S)  # OpenAI's protocol has no end, so its stream goes on
    await listening
    return " ".join(finals)


async def livekit_whole(service: stt.STT, recording: Recording) -> str:
    """Return what LiveKit gets for the whole recording."""
    frames = [AudioFrame(data, recording.rate, 1, len(data) // 2) for data in recording.frames()]
    async with service:
        return (await service.recognize(frames)).alternatives[0].text


class Listener(FrameProcessor):
    """The end of a pipeline of Pipecat's. It keeps what arrives there."""

    def __init__(self) -> None:
        super().__init__()
        self.finals: list[str] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame):
            self.finals.append(frame.text)
        await self.push_frame(frame, direction)


async def pipecat(service: FrameProcessor, recording: Recording) -> str:
    """Return the finals of a pipeline of Pipecat's, in which somebody speaks until the pause."""
    listener, last = Listener(), len(recording.frames())
    params = PipelineParams(audio_in_sample_rate=recording.rate)
    worker = PipelineWorker(Pipeline([service, listener]), params=params, enable_rtvi=False)
    errors: list[str] = []

    @worker.event_handler("on_pipeline_error")
    async def note(_: PipelineWorker, frame: ErrorFrame) -> None:
        errors.append(frame.error)

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running, number = asyncio.create_task(runner.run()), 0
    await worker.queue_frame(VADUserStartedSpeakingFrame())
    async for data in recording.frames_in_real_time():
        await worker.queue_frame(InputAudioRawFrame(audio=data, sample_rate=recording.rate, num_channels=1))
        number += 1
        if number == last:
            await worker.queue_frame(VADUserStoppedSpeakingFrame())
    await worker.queue_frame(EndFrame())
    await running
    if errors:
        raise RuntimeError(errors[0])
    return " ".join(listener.finals)


def ways(base: str, key: str, recording: Recording) -> dict[str, Coroutine[None, None, str]]:
    """Return by name a coroutine for each kind of client, which returns the recognised text."""
    v1, socket = f"{base}/v1", "ws" + base.removeprefix("http")
    listen = f"{v1}/listen"
    realtime = openai.STT(base_url=v1, api_key=key, use_realtime=True)
    return {
        "LiveKit openai.STT(use_realtime=True)": livekit_stream(realtime, recording),
        "LiveKit openai.STT, whole": livekit_whole(openai.STT(base_url=v1, api_key=key), recording),
        "LiveKit deepgram.STT": livekit_stream(deepgram.STT(base_url=listen, api_key=key), recording),
        "LiveKit deepgram.STT, whole": livekit_whole(deepgram.STT(base_url=listen, api_key=key), recording),
        "Pipecat OpenAIRealtimeSTTService": pipecat(
            OpenAIRealtimeSTTService(base_url=f"{socket}/v1/realtime", api_key=key), recording
        ),
        "Pipecat OpenAISTTService": pipecat(OpenAISTTService(base_url=v1, api_key=key), recording),
        "Pipecat DeepgramSTTService": pipecat(DeepgramSTTService(base_url=base, api_key=key), recording),
    }


async def compare(base: str, key: str, recording: Recording) -> int:
    """Print the text that each kind of client gets. Returns 1 if one of them fails or gets none."""
    async with utils.http_context.open():
        asked = ways(base.rstrip("/"), key, recording)
        heard = await asyncio.gather(*asked.values(), return_exceptions=True)
    for name, text in zip(asked, heard, strict=True):
        print(f"{name}: {text!r}")
    return 0 if all(isinstance(text, str) and text for text in heard) else 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    secret = Path(sys.argv[2]).read_text(encoding="utf-8").strip()
    sys.exit(asyncio.run(compare(sys.argv[1], secret, Recording(Path(sys.argv[3])))))
