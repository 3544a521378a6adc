// The view for live speech: sends the microphone to a live session and shows its words.
//
// A page that is left or loaded again cannot go on with its microphone, so it finishes its session. The next page of the
// tab shows the transcript, and can start another session at once.

import { ask, outputFormats } from "./api.js";
import { channels } from "./channels.js";
import { announce, find, make } from "./dom.js";
import { clock, lag } from "./format.js";
import { correctable, termIn } from "./inplace.js";
import { needKey } from "./key.js";
import { SOUNDS, microphones, openMicrophone } from "./microphone.js";
import { expect, orderFrom } from "./order.js";
import { Said, guarded, tell, warningItems } from "./problems.js";
import { LiveSession } from "./session.js";
import { closeShare, renewShare, share } from "./share.js";
import { Speakers } from "./speakers.js";
import { LiveText } from "./words.js";

const STANDINGS = {
  idle: "Start",
  trying: "Say something: the bar shows how loud you are. Nothing is sent.",
  paused: "Paused. Nothing is recorded or sent.",
  connecting: "Connecting …",
  listening: "Listening",
  reconnecting: "The server cannot be reached. Nothing is lost: what you say is kept here and sent when it is back.",
  finishing: "Finishing the last words …",
  over: "Done",
};

const KEEP_ALIVE_MS = 5000; // the server ends a session of which it hears nothing for 30 s
const CHANGEABLE = "[name=language], [name=keywords], [name=translate_to]"; // also while a session runs

const LEFT_AS = "scribewire.left"; // in sessionStorage: the jobs of the session that the last page of this tab had

const toggle = find("#speak-toggle");
const problem = find("#speak-problem");
const level = find("#speak-level");
const text = new LiveText(find("#speak-text"), find("#speak-log"));
const speakers = new Speakers(find("#speak-speakers"), find("#speak-text"), problem);

let microphone = null;
let session = null;
let newest = null; // the job whose words can be corrected
let recordedS = 0;
let channel = null; // which shows the session; null: none
let trying = null; // the microphone whose level is shown before a session
let paused = null; // the timer that keeps the session open meanwhile
const known = new Map(); // channels by their names

function show(state) {
  const shown = paused && state === "listening" ? "paused" : state;
  find("#speak-view").dataset.state = shown;
  find("#speak-standing").textContent = STANDINGS[shown];
  toggle.setAttribute("aria-label", microphone ? "Stop" : "Start");
  toggle.disabled = !microphone && !["idle", "over", "trying"].includes(state);
  find("#speak-share").hidden = !session?.jobId;
  find("#speak-pause").hidden = !(microphone && session?.jobId);
  find("#speak-pause").textContent = paused ? "Go on" : "Pause";
  find("#speak-sources").hidden = Boolean(microphone);
  find("#speak-try").textContent = trying ? "Stop the test" : "Test the microphone";
  lock(Boolean(microphone));
  if (!microphone && !trying) level.value = 0;
}

/** Lock the options that hold for a whole session, while there is one. */
function lock(running) {
  for (const control of find("#speak-order").querySelectorAll("input, select, textarea")) {
    control.disabled = running && !control.matches(CHANGEABLE);
  }
  find("#speak-locked").hidden = !running;
  if (!running) find("#speak-change").hidden = true;
}

async function start() {
  await needKey();
  await stopTrying();
  speakers.clear();
  text.clear();
  warnOfLevel("");
  recordedS = 0;
  find("#speak-lag").textContent = "–";
  find("#speak-clock").textContent = clock(0);
  find("#speak-done").hidden = true;
  closeShare();
  show("connecting");
  try {
    microphone = await openMicrophone({ ...source(), lost: guarded(problem, lost) });
    channel = known.get(find("#speak-channel").value) ?? null;
    session = new LiveSession(await order(), hear);
    microphone.listen(take);
    await session.start();
    newest = session.jobId;
    speakers.show(session.jobId);
  } catch (error) {
    session = null;
    await closeMicrophone();
    show("idle");
    throw error;
  }
}

/** Return what is to be recorded, as openMicrophone() takes it. */
const source = () => ({ sound: find("#speak-sound").value, device: find("#speak-microphone").value });

/** Return the body of POST /v1/live. */
async function order() {
  const asked = { ...orderFrom(find("#speak-order")), encoding: "pcm_s16le", sample_rate: microphone.rate };
  if (channel) asked.channel = channel.name;
  return { ...asked, output_formats: await outputFormats() };
}

/** Show how loud the sound arrives before a session, and learn the names of the microphones. */
async function tryMicrophone() {
  if (trying) return stopTrying();
  const lostIt = guarded(problem, async () => {
    await stopTrying();
    throw new Said("The microphone was disconnected.");
  });
  trying = await openMicrophone({ ...source(), lost: lostIt });
  trying.listen((_, peak) => { level.value = Math.min(1, peak * 1.6); });
  await offerMicrophones();
  show("trying");
}

async function stopTrying() {
  const open = trying;
  trying = null;
  await open?.close();
  if (open) show("idle");
}

async function offerMicrophones() {
  const field = find("#speak-microphone");
  const chosen = field.value;
  const named = (await microphones()).filter(({ label }) => label);
  const options = named.map(({ deviceId, label }) => make("option", { value: deviceId, selected: deviceId === chosen }, label));
  field.replaceChildren(make("option", { value: "" }, "default"), ...options);
}

/** Stop listening, or go on. The session stays open. */
function pause() {
  if (paused) {
    clearInterval(paused);
    paused = null;
  } else {
    session.keepAlive();
    paused = setInterval(() => session?.keepAlive(), KEEP_ALIVE_MS);
    level.value = 0;
  }
  show("listening");
}

function take(bytes, peak) {
  if (paused) return;
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
  clearInterval(paused);
  paused = null;
  await microphone?.close();
  microphone = null;
}

async function lost() {
  await stop();
  throw new Said("The microphone was disconnected. What was said until then is safe.");
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
  showTranscripts(jobs, error);
}

function showTranscripts(jobs, error = null) {
  show("over");
  closeShare();
  find("#speak-kept").textContent = error
    ? "The session broke off. The words above are all that was recognized: copy them if you need them."
    : "Every word is final and kept with your jobs.";
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
  newest = session.jobId;
  speakers.goOn(session.jobId);
  renewShare(session.jobId);
}

/** Correct final words. The readers of the live link have the correction at once. */
async function correct(change, before) {
  const made = await ask(`v1/jobs/${newest}/corrections`, { method: "POST", body: { changes: [change] } });
  for (const one of made.changes) text.hear({ ...one, type: "corrected" });
  const term = termIn(change.text, before);
  const take = () => {
    expect(term);
    find("#speak-terms").replaceChildren();
  };
  const offer = term && make("button", { type: "button", class: "plain", onclick: take }, `Add “${term}” to the expected words?`);
  find("#speak-terms").replaceChildren(...[offer].filter(Boolean));
  announce("Corrected");
}

/** Use the language and the expected words of the fields from the next sound on. */
async function change() {
  session?.change(await order());
  find("#speak-change").hidden = true;
  announce("Changed. A new transcript begins here.");
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

correctable(find("#speak-text"), {
  at: (element) => text.at(element),
  save: (change, before) => guarded(problem, () => correct(change, before))(),
});
toggle.addEventListener("click", guarded(problem, () => (microphone ? stop() : start())));
find("#speak-share").addEventListener("click", guarded(problem, () => share(session.jobId, channel)));
find("#speak-pause").addEventListener("click", pause);
find("#speak-try").addEventListener("click", guarded(problem, tryMicrophone));
for (const choice of ["#speak-sound", "#speak-microphone"]) find(choice).addEventListener("change", guarded(problem, stopTrying));
find("#speak-sound").addEventListener("change", ({ target }) => {
  find("#speak-microphone").disabled = !SOUNDS[target.value].includes("microphone");
});
find("#speak-order").addEventListener("input", ({ target }) => {
  if (microphone && target.matches(CHANGEABLE)) find("#speak-change").hidden = false;
});
find("#speak-change").addEventListener("click", guarded(problem, change));
find("#speak-view").addEventListener("focusin", guarded(problem, offerMicrophones), { once: true });
find("#speak-options").addEventListener("toggle", guarded(problem, offerChannels));
addEventListener("beforeunload", (event) => {
  if (session) event.preventDefault(); // audio that is not sent yet would be lost
});
addEventListener("pagehide", guarded(problem, leave));
const left = takeLeft();
if (left.length) showTranscripts(left);
else show("idle");
