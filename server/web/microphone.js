// The microphone as pcm_s16le, one channel, a tenth of a second at a time.

import { Said } from "./problems.js";

const RATE = 16_000; // what speech recognisers hear; more would only cost bandwidth
const WISHES = {
  channelCount: 1,
  autoGainControl: true, // a quiet speaker is still heard
  echoCancellation: false, // these pages play nothing while they listen
  noiseSuppression: false, // made for human ears; recognisers lose words to it
};

const ONE_CHANNEL = { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" };

/**
 * Opens the microphone. *lost* is called when it goes away by itself. Answers {rate, listen, close}.
 * Raises Said, DOMException.
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
    /** *take* gets all bytes since the microphone was opened, each piece with its peak (0..1). */
    listen(take) {
      flushed = new Promise((resolve) => {
        capture.port.onmessage = ({ data }) => (data === null ? resolve() : take(data.bytes, data.peak));
      });
    },
    /** Returns once the last byte was taken. */
    async close() {
      capture.port.postMessage("flush");
      await flushed;
      release(stream, context);
    },
  };
}

/** The stream at our rate; at the device's own in browsers that cannot resample a microphone. */
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
