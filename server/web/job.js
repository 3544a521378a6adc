// The view of one job: its progress and first words while it runs, its transcript and downloads when it is over.

import { admitted, ask, base, eventsToken, own, pause, persistently } from "./api.js";
import { announce, copy, find, make } from "./dom.js";
import { Editor, unsaved } from "./editor.js";
import { Finder } from "./finder.js";
import { clock, moment } from "./format.js";
import { endingOf, fileNameOf, standingOf, titleOf } from "./jobs.js";
import { needKey } from "./key.js";
import { expect } from "./order.js";
import { Player } from "./player.js";
import { Said, guarded, warningItems } from "./problems.js";
import { Speakers } from "./speakers.js";
import { again, files } from "./upload.js";
import { LiveText } from "./words.js";

const TERMINAL = ["completed", "failed", "canceled"];
const LINKS_S = 86_400; // how long the download links of this page are valid
const INVITED_S = 7 * 86_400; // how long others may correct
const problem = find("#job-problem");
const running = find("#job-running");
const player = new Player(find("#job-result"));
const finder = new Finder(find("#job-find"), find("#job-transcript"));
const speakers = new Speakers(find("#job-speakers"), find("#job-transcript"), problem);
const text = new LiveText(find("#job-text"), find("#job-log"));
let leave = () => {};
let shown = null;

/** Show a job until leaveJob() is called, at the second *at* if there is one. */
export const showJob = guarded(problem, async (id, at) => {
  leaveJob();
  const left = new Promise((resolve) => { leave = () => resolve(true); });
  running.hidden = find("#job-result").hidden = true;
  find("#job-title").textContent = "…";
  find("#job-facts").textContent = "";
  await needKey();
  let record = await patiently(id);
  if (!TERMINAL.includes(record.status)) {
    head(record);
    if (await Promise.race([left, followed(record, left)])) return;
    record = await patiently(id);
  }
  head(record);
  await result(record);
  if (at) player.goTo(Number(at));
});

export function leaveJob() {
  leave();
  speakers.clear(); // first, because it saves the names of who is in the text
  player.clear();
  finder.clear();
  find("#job-editor").replaceChildren();
  find("#job-editor").hidden = find("#job-invited").hidden = true;
  find("#job-transcript").hidden = false;
  find("#job-correct").setAttribute("aria-pressed", false);
}

/** Return the record of a job, as soon as the server answers. */
function patiently(id) {
  const told = () => { find("#job-title").textContent = "The server does not answer. This page will go on by itself."; };
  return persistently(() => ask(`v1/jobs/${encodeURIComponent(id)}?url_ttl=${LINKS_S}`), { most: Infinity, told });
}

function head(record) {
  shown = record;
  find("#job-title").textContent = titleOf(record);
  const facts = [
    moment(record.created_at),
    record.duration !== null && clock(record.duration),
    spoken(record),
    record.model,
    ["failed", "canceled"].includes(record.status) && record.status,
  ];
  find("#job-facts").textContent = facts.filter(Boolean).join(" · ");
}

/** Name the language, or each with its share of the speech. */
function spoken({ language, languages = [] }) {
  const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
  const share = new Intl.NumberFormat("en", { style: "percent" });
  if (languages.length > 1) return languages.map((one) => `${names.of(one.language)} ${share.format(one.share)}`).join(", ");
  return language && names.of(language);
}

// --- while it runs -------------------------------------------------------------------------------------------------

/** Show progress and words as they come, until the job is over. */
async function followed(record, left) {
  text.clear();
  running.hidden = false;
  find("#job-end").textContent = endingOf(record).name;
  find("#job-progress").hidden = record.source.type === "live"; // nobody knows how long it will be
  find("#job-stage").textContent = standingOf(record);
  let stopped = false;
  left.then(() => { stopped = true; });
  let last = 0;
  for (let tries = 0; !stopped; tries += 1) {
    const { token } = await eventsToken(record.job_id);
    const over = await stream(record.job_id, token, { last, left, hear(event, seq) {
      tries = 0;
      last = seq;
      text.hear(event);
      progress(record, event);
    } });
    if (over) break;
    await pause(tries);
  }
  running.hidden = true;
  return stopped;
}

/** Follow the job with one EventSource while its token is valid. Returns true if the job is over or was left. */
function stream(id, token, { last, left, hear }) {
  const address = own(`/v1/jobs/${id}/events`);
  address.search = new URLSearchParams({ token, last_event_id: last });
  const source = new EventSource(address);
  const over = new Promise((resolve) => {
    const take = (event) => hear({ ...JSON.parse(event.data), type: event.type }, Number(event.lastEventId) || last);
    for (const type of ["job.status", "job.progress", "word", "segment", "speakers.revised", "corrected"]) source.addEventListener(type, take);
    for (const state of TERMINAL) source.addEventListener(`job.${state}`, () => resolve(true));
    source.onerror = () => source.readyState === EventSource.CLOSED && resolve(false);
    left.then(resolve);
  });
  return over.finally(() => source.close());
}

/** Show how far an *event* says the job is. Words of a live session say that it runs. */
function progress(record, { type, status = "processing", stage, progress: part }) {
  if (part !== undefined) find("#job-progress").value = part;
  if (part === undefined && !stage && type !== "word") return;
  find("#job-stage").textContent = standingOf({ ...record, status, stage, progress: part ?? find("#job-progress").value });
}

// --- when it is over -----------------------------------------------------------------------------------------------

async function result(record) {
  find("#job-result").hidden = false;
  find("#job-downloads").replaceChildren(...Object.entries(record.formats).map(download));
  find("#job-warnings").replaceChildren(...warningItems(record));
  const warned = (code) => record.warnings.some((warning) => warning.code === code);
  find("#job-track").hidden = !warned("other_tracks");
  find("#job-apart").hidden = !warned("two_talks");
  find("#job-listen").hidden = record.status !== "completed";
  find("#job-file").hidden = true;
  find("#job-price").hidden = find("#job-copy").hidden = find("#job-find").hidden = !record.text;
  find("#job-correct").hidden = find("#job-invite").hidden = record.status !== "completed" || !record.text;
  if (record.status === "failed") throw new Said(`This job failed: ${record.error.message}`);
  if (record.status === "canceled") throw new Said("This job was canceled.");
  const { json, vtt } = record.formats;
  const [transcript, captions] = await Promise.all([json && fetched(json, "json"), vtt && fetched(vtt, "blob")]);
  player.show(transcript ?? { text: record.text, words: record.words ?? [], segments: [] }, captions);
  speakers.show(record.job_id);
  const source = recording(record);
  if (source) player.load(source);
  if (unsaved(record.job_id)) await correct();
}

/** Return the audio of a job: the file of this page, or the address where the server keeps it; null without one. */
const recording = ({ job_id, audio_url: kept }) => files.get(job_id) ?? (kept ? own(kept).href : null);

function listen() {
  if (recording(shown)) player.play();
  else askForFile("The server was not asked to keep this audio. Choose the file on your computer; it is not sent anywhere.");
}

function askForFile(said) {
  find("#job-file").hidden = false;
  find("#job-file [role=status]").textContent = said;
  find("#job-file input").focus();
}

/** Transcribe the audio again with each channel as a speaker: as the page has it, or as the server kept it. */
async function apart() {
  const source = recording(shown);
  if (!source) return askForFile("Choose the file again to transcribe each channel separately.");
  if (source instanceof File) return again(source);
  const answer = await fetch(source);
  if (!answer.ok) throw new Said(`The audio could not be fetched (${answer.status}).`);
  await again(new File([await answer.blob()], titleOf(shown)));
}

/** Correct the words in place of reading them, or show them again as they are now. */
async function correct() {
  const open = find("#job-editor").hidden;
  if (!open) {
    await showJob(shown.job_id);
    find("#job-correct").focus(); // the focus was lost with what this view hid
    return;
  }
  for (const part of ["#job-transcript", "#job-find", "#job-speakers", "#job-price"]) find(part).hidden = true;
  find("#job-editor").hidden = false;
  find("#job-correct").setAttribute("aria-pressed", true);
  await new Editor(find("#job-editor"), { job: shown.job_id, player, offer: expect }).show();
  find("#job-editor .word")?.focus();
}

/** Show a link with which others may correct this job. */
async function invite() {
  const { token } = await ask(`v1/jobs/${shown.job_id}/edit-links`, { method: "POST", body: { expires_in: INVITED_S } });
  const field = find("#job-invited-link");
  field.value = new URL(`edit/${shown.job_id}#token=${token}`, base()).href;
  find("#job-invited").hidden = false;
  field.focus();
  field.select();
}

async function fetched(link, kind) {
  const answer = await fetch(own(link));
  if (!answer.ok) throw new Said(`The transcript could not be fetched (${answer.status}).`);
  return answer[kind]();
}

function download([format, link]) {
  const name = format.toUpperCase();
  const attributes = { class: "button plain", href: own(link).href, download: true, "aria-label": `Download ${name}` };
  return make("a", attributes, name);
}

find("#job-listen").addEventListener("click", guarded(problem, listen));
find("#job-file input").addEventListener("change", ({ target }) => {
  if (!target.files.length) return;
  files.set(shown.job_id, target.files[0]);
  player.load(target.files[0]);
  find("#job-file").hidden = true;
  target.value = "";
});
player.onfailure(() => askForFile("This browser cannot play the audio of this job. Choose the file in another format."));
find("#job-apart").addEventListener("click", guarded(problem, apart));
find("#job-copy").addEventListener("click", guarded(problem, async () => {
  const { txt } = shown.formats;
  const text = txt ? await fetched(txt, "text") : shown.text;
  await copy(text, "Text");
}));

find("#job-track").addEventListener("click", () => {
  const choice = find("#files-order select[name=track]");
  choice.closest("details").open = true;
  addEventListener("hashchange", () => choice.focus(), { once: true }); // after the view has its own focus
  location.hash = "#files";
});
find("#job-end").addEventListener("click", guarded(problem, async () => {
  const { path, done } = endingOf(shown);
  await ask(path, { method: "POST" });
  announce(done);
}));
find("#job-delete").addEventListener("click", guarded(problem, async () => {
  if (!confirm(`Delete “${titleOf(shown)}” with its transcript?`)) return;
  await ask(`v1/jobs/${shown.job_id}`, { method: "DELETE" });
  files.delete(shown.job_id);
  location.hash = "#files";
  announce("Deleted");
}));
find("#job-correct").addEventListener("click", guarded(problem, correct));
find("#job-invite").addEventListener("click", guarded(problem, invite));
find("#job-invited-copy").addEventListener("click", guarded(problem, () => copy(find("#job-invited-link").value, "Link")));
find("#job-price").addEventListener("click", () => {
  document.dispatchEvent(new CustomEvent("estimate", { detail: shown.text }));
});
document.addEventListener("key", () => !admitted() && leaveJob());
