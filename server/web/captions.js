// The page of live captions for a big screen: anyone with the link can read the words of one session, and no more.

import { find } from "./dom.js";
import { lag } from "./format.js";
import { Overlay, overlayOf } from "./overlay.js";
import { sentence } from "./problems.js";
import { follow } from "./socket.js";
import { watch } from "./watch.js";
import { LiveText } from "./words.js";

const STEPS = [0.5, 0.7, 1, 1.35, 1.8, 2.4];
const standing = find("#standing");
const isOverlay = new URLSearchParams(location.search).has("overlay");
if (isOverlay) document.documentElement.classList.add("overlay"); // before the words: only the language asked for is shown
const text = new LiveText(find("#captions"), find("#captions-log"));
let step = 2;
let overlay = null;
let session = null; // whose words are shown

function size(by) {
  step = Math.max(0, Math.min(STEPS.length - 1, step + by));
  document.documentElement.style.setProperty("--size", STEPS[step]);
  find("#smaller").disabled = step === 0;
  find("#larger").disabled = step === STEPS.length - 1;
}

function hear(event) {
  if (session !== null && event.job_id !== session) text.clear();
  session = event.job_id;
  text.hear(event);
  if (overlay && (event.type === "word" || event.text)) overlay.heard();
  if (event.type === "word") find("#lag").textContent = `Lag ${lag(event.lag_ms)}`;
}

/** Keep the screen on, in browsers that can. */
async function stayAwake() {
  if (!navigator.wakeLock || document.hidden) return;
  await navigator.wakeLock.request("screen").catch((error) => console.info(`The screen may sleep: ${error.message}`));
}

/** Show *message* where it can be seen: an overlay has no header. */
function say(message) {
  standing.textContent = message;
  if (document.documentElement.classList.contains("overlay")) find("#captions").textContent = message;
}

async function run() {
  try {
    const asked = overlayOf(new URLSearchParams(location.search));
    if (asked) overlay = new Overlay(find("#captions"), asked);
  } catch (error) {
    document.documentElement.classList.add("overlay");
    say(sentence(error));
    return;
  }
  await show();
}

async function show() {
  const jobId = location.pathname.split("/").at(-1);
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) {
    say("This link is not whole: what stands behind # is missing.");
    return;
  }
  const SAID = { waiting: "Waiting for a session …", connected: "Live", reconnecting: "Reconnecting …" };
  const options = { token, hear, standing: (state) => { standing.textContent = SAID[state]; } };
  try {
    if (jobId.startsWith("chn_")) await watch(jobId, options);
    await follow(jobId, options);
    standing.textContent = "The session is over.";
  } catch (error) {
    say(sentence(error));
  }
}

find("#smaller").addEventListener("click", () => size(-1));
find("#larger").addEventListener("click", () => size(1));
find("#full").addEventListener("click", () =>
  document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen());
find("#full").hidden = !document.fullscreenEnabled;
document.addEventListener("visibilitychange", stayAwake);
addEventListener("hashchange", () => location.reload()); // a link with another token is another session
stayAwake();
run();
