// The page of live captions for a big screen: anyone with the link can read the words of one session, and no more.

import { find } from "./dom.js";
import { lag } from "./format.js";
import { sentence } from "./problems.js";
import { follow } from "./socket.js";
import { LiveText } from "./words.js";

const STEPS = [0.5, 0.7, 1, 1.35, 1.8, 2.4];
const standing = find("#standing");
const text = new LiveText(find("#captions"), find("#captions-log"));
let step = 2;

function size(by) {
  step = Math.max(0, Math.min(STEPS.length - 1, step + by));
  document.documentElement.style.setProperty("--size", STEPS[step]);
  find("#smaller").disabled = step === 0;
  find("#larger").disabled = step === STEPS.length - 1;
}

function hear(event) {
  text.hear(event);
  if (event.type === "word") find("#lag").textContent = `Lag ${lag(event.lag_ms)}`;
}

/** Keep the screen on, in browsers that can. */
async function stayAwake() {
  if (!navigator.wakeLock || document.hidden) return;
  await navigator.wakeLock.request("screen").catch((error) => console.info(`The screen may sleep: ${error.message}`));
}

async function run() {
  const jobId = location.pathname.split("/").at(-1);
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) {
    standing.textContent = "This link is not whole: what stands behind # is missing.";
    return;
  }
  const SAID = { connected: "Live", reconnecting: "Reconnecting …" };
  try {
    await follow(jobId, { token, hear, standing: (state) => { standing.textContent = SAID[state]; } });
    standing.textContent = "The session is over.";
  } catch (error) {
    standing.textContent = sentence(error);
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
