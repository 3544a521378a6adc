// Shows errors as sentences that say what to do next.

import { Gone, Problem } from "./api.js";
import { make } from "./dom.js";
import { day, inMinutes, plain } from "./format.js";

const ADVICE = {
  quota_exceeded: ({ limit, window, resets_at: again }) =>
    `All ${window === "audio_seconds" ? inMinutes(Math.floor(limit / 60)) + " of audio" : `${limit} ${plain(window)}`} ` +
    `are used up. This resets on ${day(again)}. Until then, ask whoever runs this server for a larger plan.`,
  rate_limited: () => "Too many requests within one minute. Wait a moment, then try again.",
  concurrency_limited: () => "Too many jobs or live sessions of this key are still running. Wait for one to end, or end it under Files.",
  invalid_key: () => "This key is unknown, revoked or expired. Choose another one under Account.",
  missing_credentials: () => "You need a key. Get one, or use yours, under Account.",
  signup_closed: (body) => `No free keys here: ${body.detail}.`,
  queue_full: () => "The server is full at the moment. Try again in a little while.",
  audio_too_long: (body) => `The audio is too long for this plan: ${body.detail}.`,
  payload_too_large: (body) => `Too large for this plan: ${body.detail}.`,
  empty_file: () => "The file is empty.",
  unsupported_audio_format: () => "This is not an audio or video file that the server knows.",
  no_audio_stream: () => "This file has pictures but no sound.",
  url_not_allowed: (body) => `The server may not fetch this address: ${body.detail}.`,
  job_not_found: () => "There is no such job, or it belongs to another key.",
  channel_not_found: () => "This channel no longer exists. Ask for its new link.",
  invalid_token: () => "This link has expired. Ask for a new one.",
};

/** An error with a message for the user. */
export class Said extends Error {}

const FORESEEN = [Said, Problem, Gone, DOMException];

const MICROPHONE = {
  NotAllowedError: "The browser may not use the microphone. Allow it beside the address, then try again.",
  NotFoundError: "No microphone was found. Plug one in, then try again.",
  NotReadableError: "The microphone is in use by another program.",
};

export function sentence(error) {
  if (error instanceof Problem) return ADVICE[error.code]?.(error.body) ?? error.message;
  return MICROPHONE[error.name] ?? error.message;
}

/** Show *error* in *box*, an element with role="alert"; null removes the last one. */
export function tell(box, error) {
  box.hidden = error === null;
  box.textContent = error === null ? "" : sentence(error);
  if (error !== null && !FORESEEN.some((kind) => error instanceof kind)) {
    console.error(error); // a fault in this page's own code
  }
}

const WHAT_TO_DO = {
  two_talks: "Transcribe it again with each channel as a speaker.",
  other_tracks: "Choose the audio track, then upload the file again.",
  undecodable_track: "Export the recording again if something is missing.",
  identical_channels: "It was heard and counted once.",
  quiet_input: "Record nearer to the microphone if words are missing.",
  audio_truncated: "Upload the whole file again if its end is missing.",
  frames_skipped: "Upload an undamaged copy if words are missing.",
  bytes_not_heard: "Upload that part as a file of its own if words are missing.",
  language_doubtful: "Name the languages that are spoken, then upload the file again.",
  fallback_model: "Ask the operator of the server to repair its model.",
  translation_incomplete: "Upload the file again once the translator answers, or see the original there.",
  translation_unavailable: "Ask the operator of the server to look after its translator if that lasts.",
  webhook_disabled: "Redeliver the webhooks once their address answers again.",
};

/** Make list items of the warnings of a job, each with what to do. */
export const warningItems = ({ warnings }) =>
  warnings.map(({ message, code, param }) => {
    const said = message ?? [code.replaceAll("_", " "), param].filter(Boolean).join(": ");
    const full = /[.?!]$/.test(said) ? said : `${said}.`;
    return make("li", { "data-code": code }, [full[0].toUpperCase() + full.slice(1), WHAT_TO_DO[code]].filter(Boolean).join(" "));
  });

/** Make a listener of *work* that shows its errors in *box*. */
export const guarded = (box, work) => async (...given) => {
  tell(box, null);
  try {
    await work(...given);
  } catch (error) {
    if (error !== DISMISSED) tell(box, error);
  }
};

/** Thrown when the user closes a dialog without an answer. It is not an error. */
export const DISMISSED = new Error("dismissed");
