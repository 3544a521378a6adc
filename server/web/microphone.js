// Records the microphone, the sound of a tab or the computer, or both, as mono pcm_s16le in pieces of a tenth of a second.

import { Said } from "./problems.js";

const RATE = 16_000; // the rate of speech recognisers; a higher one would only cost bandwidth
const WISHES = {
  channelCount: 1,
  autoGainControl: true, // so that quiet speech is recognised too
  echoCancellation: false, // these pages play nothing while they record
  noiseSuppression: false, // made for human ears; recognisers lose words by it
};

const ONE_CHANNEL = { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" };

/** The sounds that may be recorded. */
export const SOUNDS = { microphone: ["microphone"], both: ["shared", "microphone"], shared: ["shared"] };

const OPEN = {
  microphone: (device) => {
    const chosen = device ? { deviceId: { exact: device } } : {};
    return navigator.mediaDevices.getUserMedia({ audio: { ...WISHES, ...chosen } });
  },
  shared: openShared,
};

/** Return the microphones as {deviceId, label}. Their names are known only once one was opened. */
export async function microphones() {
  const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return devices.filter(({ kind, deviceId }) => kind === "audioinput" && deviceId && deviceId !== "default");
}

/** Let the user choose a tab, a window or the screen. Browsers offer its sound only with its picture. */
async function openShared() {
  if (!navigator.mediaDevices.getDisplayMedia) throw new Said("This browser cannot share the sound of a tab.");
  const stream = await navigator.mediaDevices.getDisplayMedia({ audio: { suppressLocalAudioPlayback: false }, video: true });
  if (stream.getAudioTracks().length) return stream;
  stop(stream);
  throw new Said("What you chose shares no sound. Choose a tab, or the whole screen, and turn its sound on in the same dialog.");
}

/**
 * Open a *sound* of SOUNDS; *device* is the id of a microphone, or empty for the usual one. *lost* is called if it
 * disappears. Returns {rate, listen, close}. Throws Said or DOMException.
 */
export async function openMicrophone({ sound = "microphone", device = "", lost }) {
  if (!navigator.mediaDevices) {
    throw new Said("Browsers allow the microphone only on https pages and on this machine.");
  }
  const streams = [];
  let context = null;
  let capture;
  try {
    for (const kind of SOUNDS[sound]) streams.push(await OPEN[kind](device));
    context = contextFor(streams);
    await context.audioWorklet.addModule(new URL("./capture.js", import.meta.url));
    capture = new AudioWorkletNode(context, "capture", ONE_CHANNEL);
    for (const stream of streams) context.createMediaStreamSource(stream).connect(capture);
  } catch (error) {
    release(streams, context);
    throw error;
  }
  await context.resume();
  for (const stream of streams) stream.getAudioTracks()[0].addEventListener("ended", lost);
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
      release(streams, context);
    },
  };
}

/** Return a context at RATE, or at the rate of the devices in browsers that cannot resample. */
function contextFor(streams) {
  const context = new AudioContext({ sampleRate: RATE });
  try {
    for (const stream of streams) context.createMediaStreamSource(stream);
    return context;
  } catch {
    context.close();
    return new AudioContext();
  }
}

function release(streams, context) {
  streams.forEach(stop);
  context?.close();
}

const stop = (stream) => stream.getTracks().forEach((track) => track.stop());
