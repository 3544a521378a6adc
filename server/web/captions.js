// The page of live captions for a big screen: anyone with the link can read the words of one session, and no more.

import { find } from "./dom.js";
import { lag } from "./format.js";
import { Overlay, overlayOf } from "./overlay.js";
import { sentence } from "./problems.js";
import { follow, terminal } from "./socket.js";
import { watch } from "./watch.js";
import { LiveText } from "./words.js";

const STEPS = [0.35, 0.5, 0.7, 1, 1.35, 1.8, 2.4];
const KEPT_AS = "scribewire.letters"; // in localStorage: the reader's size of letters
const standing = find("#standing");
const isOverlay = new URLSearchParams(location.search).has("overlay");
if (isOverlay) document.documentElement.classList.add("overlay"); // before the words: only the language asked for is shown
const text = new LiveText(find("#captions"), find("#captions-log"));
let step = storedStep();
let overlay = null;
let session = null; // whose words are shown

function size(by) {
  const atEnd = isAtEnd();
  step = Math.max(0, Math.min(STEPS.length - 1, step + by));
  document.documentElement.style.setProperty("--size", STEPS[step]);
  find("#smaller").disabled = step === 0;
  find("#larger").disabled = step === STEPS.length - 1;
  if (by) storeStep();
  if (atEnd) showNewest();
}

function storedStep() {
  try {
    const at = STEPS.indexOf(Number(localStorage.getItem(KEPT_AS)));
    return at < 0 ? STEPS.indexOf(1) : at;
  } catch {
    return STEPS.indexOf(1); // This browser stores nothing for this page.
  }
}

function storeStep() {
  try {
    localStorage.setItem(KEPT_AS, STEPS[step]);
  } catch {
    // As above: the size holds as long as the page is open.
  }
}

/** Offer the way back to the newest line to who has scrolled up. */
function offerNewest() {
  find("#newest").hidden = isAtEnd();
}

function isAtEnd() {
  const { scrollHeight, scrollTop, clientHeight } = find("#captions");
  return scrollHeight - scrollTop - clientHeight < 80;
}

function showNewest() {
  find("#captions").scrollTop = find("#captions").scrollHeight;
}

function hear(event) {
  if (session !== null && event.job_id !== session) {
    if (overlay) text.clear();
    else text.divide();
  }
  session = event.job_id;
  text.hear(event);
  if (terminal(event)) standing.textContent = "Paused. The next session will appear here.";
  offerNewest();
  if (overlay && (["word", "corrected"].includes(event.type) || event.text)) overlay.heard();
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
    say("This link is incomplete: the part after # is missing. Copy all of it.");
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

find("#captions").addEventListener("scroll", offerNewest);
find("#newest").addEventListener("click", () => {
  showNewest();
  find("#captions").focus();
});
find("#smaller").addEventListener("click", () => size(-1));
find("#larger").addEventListener("click", () => size(1));
find("#full").addEventListener("click", () =>
  document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen());
find("#full").hidden = !document.fullscreenEnabled;
document.addEventListener("visibilitychange", stayAwake);
addEventListener("hashchange", () => location.reload()); // a link with another token is another session
size(0);
stayAwake();
run();
