// Records the microphone as mono pcm_s16le, in pieces of a tenth of a second.

import { Said } from "./problems.js";

const RATE = 16_000; // the rate of speech recognisers; a higher one would only cost bandwidth
const WISHES = {
  channelCount: 1,
  autoGainControl: true, // so that quiet speech is recognised too
  echoCancellation: false, // these pages play nothing while they record
  noiseSuppression: false, // made for human ears; recognisers lose words by it
};

const ONE_CHANNEL = { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" };

/**
 * Open the microphone. *lost* is called if it disappears. Returns {rate, listen, close}.
 * Throws Said or DOMException.
 */
export async function openMicrophone({ lost }) {
  if (!navigator.mediaDevices) {
    throw new Said("Browsers give the microphone only to pages that came by https or from this machine.");
  }
  const stream = await navigator.mediaDevices.getUserMedia({ audio: WISHES });
  const { context, source } = connected(stream);
  try {
    await context.audioWorklet.addModule(new URL("./capture.js", import.meta.url));
  } catch (error) {
    release(stream, context);
    throw error;
  }
  const capture = new AudioWorkletNode(context, "capture", ONE_CHANNEL);
  source.connect(capture);
  await context.resume();
  stream.getAudioTracks()[0].addEventListener("ended", lost);
  let flushed = Promise.resolve();
  return {
    rate: context.sampleRate,
    /** Call *take* with all bytes since the microphone was opened, each piece with its peak (0..1). */
    listen(take) {
      flushed = new Promise((resolve) => {
        capture.port.onmessage = ({ data }) => {
          if (data !== null) return take(data.bytes, data.peak);
          capture.port.onmessage = null; // it goes on for some moments until the context is closed
          resolve();
        };
      });
    },
    /** Close the microphone, and return when the last byte was taken. */
    async close() {
      capture.port.postMessage("flush");
      await flushed;
      release(stream, context);
    },
  };
}

/** Return the stream at RATE, or at the rate of the device in browsers that cannot resample. */
function connected(stream) {
  let context = new AudioContext({ sampleRate: RATE });
  try {
    return { context, source: context.createMediaStreamSource(stream) };
  } catch {
    context.close();
    context = new AudioContext();
    return { context, source: context.createMediaStreamSource(stream) };
  }
}

function release(stream, context) {
  for (const track of stream.getTracks()) track.stop();
  context.close();
}
