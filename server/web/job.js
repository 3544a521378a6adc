// The view of one job: its progress and first words while it runs, its transcript and downloads when it is over.

import { ask, eventsToken, getKey, own, pause } from "./api.js";
import { announce, find, make } from "./dom.js";
import { Finder } from "./finder.js";
import { clock, moment } from "./format.js";
import { endingOf, titleOf } from "./jobs.js";
import { needKey } from "./key.js";
import { Player } from "./player.js";
import { Said, guarded, warningItems } from "./problems.js";
import { Speakers } from "./speakers.js";
import { files } from "./upload.js";
import { LiveText } from "./words.js";

const TERMINAL = ["completed", "failed", "canceled"];
const LINKS_S = 86_400; // how long the download links of this page are valid
const STAGES = { queued: "Waiting for its turn", downloading: "Fetching the audio" };

const problem = find("#job-problem");
const running = find("#job-running");
const player = new Player(find("#job-result"));
const finder = new Finder(find("#job-find"), find("#job-result .transcript"));
const speakers = new Speakers(find("#job-speakers"), find("#job-result .transcript"));
const text = new LiveText(find("#job-text"), find("#job-log"));
let leave = () => {};
let shown = null;

/** Show a job until leaveJob() is called. */
export const showJob = guarded(problem, async (id) => {
  leaveJob();
  const left = new Promise((resolve) => { leave = () => resolve(true); });
  running.hidden = find("#job-result").hidden = true;
  find("#job-title").textContent = "…";
  find("#job-facts").textContent = "";
  await needKey();
  let record = await get(id);
  if (!TERMINAL.includes(record.status)) {
    head(record);
    if (await Promise.race([left, followed(record, left)])) return;
    record = await get(id);
  }
  head(record);
  await result(record);
});

export function leaveJob() {
  leave();
  player.clear();
  finder.clear();
  speakers.clear();
}

const get = (id) => ask(`v1/jobs/${encodeURIComponent(id)}?url_ttl=${LINKS_S}`);

function head(record) {
  shown = record;
  find("#job-title").textContent = titleOf(record);
  const facts = [
    moment(record.created_at),
    record.duration !== null && clock(record.duration),
    spoken(record),
    record.model,
    !["completed", "processing"].includes(record.status) && record.status,
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
  progress(record);
  let stopped = false;
  left.then(() => { stopped = true; });
  let last = 0;
  for (let tries = 0; !stopped; tries += 1) {
    const { token } = await eventsToken(record.job_id);
    const over = await stream(record.job_id, token, { last, left, hear(event, seq) {
      tries = 0;
      last = seq;
      text.hear(event);
      progress(event);
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
    for (const type of ["job.status", "job.progress", "word", "segment", "speakers.revised"]) source.addEventListener(type, take);
    for (const state of TERMINAL) source.addEventListener(`job.${state}`, () => resolve(true));
    source.onerror = () => source.readyState === EventSource.CLOSED && resolve(false);
    left.then(resolve);
  });
  return over.finally(() => source.close());
}

function progress({ status, stage, progress: part }) {
  if (part !== undefined) find("#job-progress").value = part;
  const said = STAGES[stage] ?? STAGES[status] ?? (part && `Transcribing, ${Math.round(part * 100)} %`);
  if (said) find("#job-stage").textContent = said;
}

// --- when it is over -----------------------------------------------------------------------------------------------

async function result(record) {
  find("#job-result").hidden = false;
  find("#job-downloads").replaceChildren(...Object.entries(record.formats).map(download));
  find("#job-warnings").replaceChildren(...warningItems(record));
  find("#job-track").hidden = !record.warnings.some(({ code }) => code === "other_tracks");
  find("#job-listen").hidden = record.status !== "completed";
  find("#job-price").hidden = find("#job-find").hidden = !record.text;
  if (record.status === "failed") throw new Said(`This job failed: ${record.error.message}`);
  if (record.status === "canceled") throw new Said("This job was canceled.");
  const { json, vtt } = record.formats;
  const [transcript, captions] = await Promise.all([json && fetched(json, "json"), vtt && fetched(vtt, "blob")]);
  player.show(transcript ?? { text: record.text, words: record.words ?? [], segments: [] }, captions);
  speakers.show(record.job_id);
  const file = files.get(record.job_id);
  if (file) player.play(file);
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
  speakers.forget(shown.job_id);
  location.hash = "#files";
  announce("Deleted");
}));
find("#job-price").addEventListener("click", () => {
  document.dispatchEvent(new CustomEvent("estimate", { detail: shown.text }));
});
document.addEventListener("key", () => !getKey() && leaveJob());
