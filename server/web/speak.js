// The view for live speech: sends the microphone to a live session and shows its words.
//
// A page that is left or loaded again cannot go on with its microphone, so it finishes its session. The next page of the
// tab shows the transcript, and can start another session at once.

import { ask, base, eventsToken, outputFormats } from "./api.js";
import { channels, overlayLink, ownPage } from "./channels.js";
import { announce, copy, find, make } from "./dom.js";
import { clock, lag } from "./format.js";
import { needKey } from "./key.js";
import { openMicrophone } from "./microphone.js";
import { orderFrom } from "./order.js";
import { Said, guarded, tell, warningItems } from "./problems.js";
import { LiveSession } from "./session.js";
import { Speakers } from "./speakers.js";
import { LiveText } from "./words.js";

const STANDINGS = {
  idle: "Press to speak",
  connecting: "Connecting …",
  listening: "Listening",
  reconnecting: "The server is gone. Nothing is lost: what you say is kept here and sent when it is back.",
  finishing: "Finishing the last words …",
  over: "Done",
};

const LEFT_AS = "scribewire.left"; // in sessionStorage: the jobs of the session that the last page of this tab had

const toggle = find("#speak-toggle");
const problem = find("#speak-problem");
const level = find("#speak-level");
const text = new LiveText(find("#speak-text"), find("#speak-log"));
const speakers = new Speakers(find("#speak-speakers"), find("#speak-text"));

let microphone = null;
let session = null;
let recordedS = 0;
let channel = null; // which shows the session; null: none
const known = new Map(); // channels by their names

function show(state) {
  find("#speak-view").dataset.state = state;
  find("#speak-standing").textContent = STANDINGS[state];
  toggle.setAttribute("aria-label", microphone ? "Stop" : "Start speaking");
  toggle.disabled = !microphone && !["idle", "over"].includes(state);
  find("#speak-share").hidden = !session?.jobId;
  if (!microphone) level.value = 0;
}

async function start() {
  await needKey();
  text.clear();
  speakers.clear();
  warnOfLevel("");
  recordedS = 0;
  find("#speak-lag").textContent = "–";
  find("#speak-clock").textContent = clock(0);
  find("#speak-done").hidden = find("#speak-shared").hidden = true;
  show("connecting");
  try {
    microphone = await openMicrophone({ lost: guarded(problem, lost) });
    channel = known.get(find("#speak-channel").value) ?? null;
    const order = { ...orderFrom(find("#speak-order")), encoding: "pcm_s16le", sample_rate: microphone.rate };
    if (channel) order.channel = channel.name;
    session = new LiveSession({ ...order, output_formats: await outputFormats() }, hear);
    microphone.listen(take);
    await session.start();
    speakers.show(session.jobId);
  } catch (error) {
    session = null;
    await closeMicrophone();
    show("idle");
    throw error;
  }
}

function take(bytes, peak) {
  recordedS += bytes.length / 2 / microphone.rate;
  level.value = Math.min(1, peak * 1.6);
  find("#speak-clock").textContent = clock(recordedS);
  session?.push(bytes);
}

async function stop() {
  await closeMicrophone();
  session?.end();
}

async function closeMicrophone() {
  await microphone?.close();
  microphone = null;
}

async function lost() {
  await stop();
  throw new Said("The microphone went away. What was said until then is safe.");
}

function hear(event) {
  text.hear(event);
  if (event.speaker || event.type === "speakers.revised") speakers.renew();
  if (event.type === "word") find("#speak-lag").textContent = lag(event.lag_ms);
  else if (event.type === "state") show(event.state);
  else if (event.type === "continued") goOn();
  else if (event.type === "warning" && event.code === "quiet_input") warnOfLevel(event.message);
  else if (event.type === "job.completed") find("#speak-warnings").replaceChildren(...warningItems(event.data));
  else if (event.type === "job.failed") tell(problem, new Said(event.data.error.message));
  else if (event.type === "job.canceled") tell(problem, new Said("The session was canceled."));
  else if (event.type === "over") over(event.error);
}

/** Show beside the meter that the microphone is too quiet; an empty message takes that back. */
function warnOfLevel(message) {
  find("#speak-quiet").textContent = message;
  find("#speak-quiet").hidden = !message;
}

async function over(error) {
  if (error) tell(problem, error);
  const jobs = session.jobs;
  session = null;
  await closeMicrophone();
  showTranscripts(jobs);
}

function showTranscripts(jobs) {
  show("over");
  find("#speak-shared").hidden = true;
  find("#speak-transcripts").replaceChildren(...jobs.map(transcriptLink));
  find("#speak-done").hidden = false;
}

/** Finish the session of a page that is left. */
async function leave() {
  if (!session?.jobId) return;
  storeLeft(session.jobs);
  await ask(`v1/jobs/${session.jobId}/finish`, { method: "POST", keepalive: true });
}

function storeLeft(jobs) {
  try {
    sessionStorage.setItem(LEFT_AS, JSON.stringify(jobs));
  } catch {
    // This browser stores nothing for this page. The transcript is in the list of files.
  }
}

/** Return the jobs that leave() has stored, once. */
function takeLeft() {
  try {
    const jobs = JSON.parse(sessionStorage.getItem(LEFT_AS)) ?? [];
    sessionStorage.removeItem(LEFT_AS);
    return jobs;
  } catch {
    return []; // as above
  }
}

function transcriptLink(id, index, { length }) {
  const part = length > 1 ? `, part ${index + 1}` : "";
  return make("a", { class: "button", href: `#job/${id}` }, `Transcript and downloads${part}`);
}

/** Note that the session continues as another job, whose readers need another link. */
function goOn() {
  text.newStream();
  if (!find("#speak-shared").hidden) renewLink();
}

const renewLink = guarded(problem, async () => {
  await putLink();
  announce("The session goes on in a new job. Its live link is another one now.");
});

/** Make a link with which others can read along, and see nothing else of this account. */
async function putLink() {
  const link = channel ? ownPage(channel.page_url) : await sessionLink();
  const lasts = channel ? `what is spoken into the channel ${channel.name}` : "along for an hour";
  find("#speak-link-label").textContent = `Whoever has this link can read ${lasts}, and see nothing else of yours`;
  find("#speak-link").value = link;
  find("#speak-open").href = link;
}

async function sessionLink() {
  const { token } = await eventsToken(session.jobId);
  return new URL(`live/${session.jobId}#token=${token}`, base()).href;
}

/** Let the user choose one of the account's channels. Until they are loaded, those of the last time stay. */
async function offerChannels() {
  const offered = await channels();
  const chosen = find("#speak-channel").value;
  known.clear();
  for (const one of offered) known.set(one.name, one);
  const names = ["", ...known.keys()];
  const options = names.map((name) => make("option", { value: name, selected: name === chosen }, name || "none"));
  find("#speak-channel").replaceChildren(...options);
}

async function share() {
  await putLink();
  find("#speak-shared").hidden = false;
  find("#speak-link").focus(); // screen readers read its label, which explains the link
  find("#speak-link").select();
}

toggle.addEventListener("click", guarded(problem, () => (microphone ? stop() : start())));
find("#speak-share").addEventListener("click", guarded(problem, share));
find("#speak-copy").addEventListener("click", guarded(problem, () => copy(find("#speak-link").value, "Link")));
find("#speak-overlay").addEventListener("click", guarded(problem, () =>
  copy(overlayLink(find("#speak-link").value), "Overlay link")));
find("#speak-view details").addEventListener("toggle", guarded(problem, offerChannels));
addEventListener("beforeunload", (event) => {
  if (session) event.preventDefault(); // audio that is not sent yet would be lost
});
addEventListener("pagehide", guarded(problem, leave));
const left = takeLeft();
if (left.length) showTranscripts(left);
else show("idle");
