// The jobs of this key: those in work as a queue with their progress, and the recent ones.

import { admitted, ask, outputFormats, own } from "./api.js";
import { announce, find, make, quiet } from "./dom.js";
import { clock, counted, moment } from "./format.js";
import { Said, guarded } from "./problems.js";
import { save, zip } from "./zip.js";

const AGAIN_MS = 5000; // between two looks at the queue; the smallest plan allows 30 requests a minute
const SEARCH_MS = 300; // after the last key
const ACTIVE = ["queued", "processing"];
const BADGES = { completed: "done", failed: "failed", canceled: "canceled" };
const INCOMPLETE = { audio_truncated: "cut short", bytes_not_heard: "part missing", frames_skipped: "part missing" };

const box = find("#jobs");
const queue = find("#queue");
const more = find("#jobs-more");
const problem = find("#jobs-problem");
const waiting = new Map(); // the rows of the queue by the jobs' ids
const search = find("#jobs-search input");
const shown = new Map(); // the jobs that are over, by their ids: {job, box}
let cursors = []; // of the pages to come, one for each request
let timer;
let typing;

export const titleOf = ({ source }) =>
  source.filename ?? source.url ?? (source.type === "live" ? "Live session" : "Upload");

/** How a job in work is ended: a live session keeps its words, any other job is given up. */
export const endingOf = ({ job_id, source }) =>
  source.type === "live"
    ? { name: "Finish", path: `v1/jobs/${job_id}/finish`, done: "Finished" }
    : { name: "Cancel", path: `v1/jobs/${job_id}/cancel`, done: "It will stop at once, or at its next sentence." };

/** Say in words what a job in work does. */
export function standingOf({ status, stage, progress, source, created_at: created }) {
  if (source.type === "live") {
    const minutes = Math.floor((Date.now() - new Date(created)) / 60_000);
    return status === "queued" ? "Live, waiting for sound" : `Live for ${counted(minutes, "minute")}`;
  }
  if (status === "queued") return "Waiting for its turn";
  if (stage === "downloading") return "Fetching the audio";
  return progress ? `Transcribing, ${Math.round(progress * 100)} %` : "Starting";
}

/** Return the name of a file that is made of a job in *format*: srt.de, a translated one, ends in .de.srt. */
export const fileNameOf = (job, format) =>
  `${titleOf(job).split(/[/\\]/).at(-1).replace(/\.\w{1,5}$/, "").replaceAll(/[\\/:*?"<>|]/g, "_") || job.job_id}.${format.split(".").reverse().join(".")}`;

function row(job) {
  const parts = [
    moment(job.created_at),
    job.duration !== null && clock(job.duration),
    job.language,
  ].filter(Boolean);
  const mark = job.warnings.map(({ code }) => INCOMPLETE[code]).find(Boolean);
  const select = make("input", { type: "checkbox", "aria-label": `Choose ${titleOf(job)}`, onchange: showChosen });
  shown.set(job.job_id, { job, select });
  return make("li", {},
    select,
    make("a", { href: `#job/${job.job_id}` }, titleOf(job)),
    quiet(parts.join(" · ")),
    make("span", { class: `badge ${mark ? "incomplete" : job.status}` }, mark ?? BADGES[job.status]),
    job.matches?.length > 0 && make("ul", { class: "matches", "aria-label": `Found in ${titleOf(job)}` }, job.matches.map(match(job))),
  );
}

/** Make a list item of what was found, which leads to that time. */
const match = (job) => ({ start, before, text, after }) =>
  make("li", {}, make("a", { href: `#job/${job.job_id}/${start}` }, clock(start)), ` ${before} `, make("mark", {}, text), ` ${after}`);

const chosen = () => [...shown.values()].filter(({ select }) => select.checked).map(({ job }) => job);

/** Say how many jobs are chosen, and offer what can be done with several. */
function showChosen() {
  const { length } = chosen();
  find("#jobs-count").textContent = length ? `${length} chosen` : "";
  find("#jobs-chosen").hidden = !shown.size;
  find("#jobs-zip").disabled = find("#jobs-delete").disabled = !length;
  find("#jobs-all").checked = length > 0 && length === shown.size;
}

/** Save the files of all chosen jobs in one archive. */
async function saveChosen() {
  const only = find("#jobs-format").value;
  const files = [];
  for (const job of chosen()) {
    for (const [format, link] of Object.entries(job.formats)) {
      if (only && format !== only) continue;
      const answer = await fetch(own(link));
      if (!answer.ok) throw new Said(`${fileNameOf(job, format)} could not be fetched (${answer.status}).`);
      files.push({ name: fileNameOf(job, format), bytes: new Uint8Array(await answer.arrayBuffer()) });
    }
  }
  if (!files.length) throw new Said(`None of the selected jobs has ${only ? only.toUpperCase() : "files"}.`);
  save(zip(files), "transcripts.zip");
  announce(`${counted(files.length, "file")} packed`);
}

async function deleteChosen() {
  const jobs = chosen();
  if (!confirm(`Delete ${counted(jobs.length, "job")} with their transcripts?`)) return;
  for (const { job_id: id } of jobs) await ask(`v1/jobs/${id}`, { method: "DELETE" });
  announce("Deleted");
  await load();
}

async function offerFormats() {
  const field = find("#jobs-format");
  if (field.options.length > 1) return;
  field.append(...(await outputFormats()).map((name) => make("option", { value: name }, name.toUpperCase())));
}

/** A job of the queue. Its elements stay while it is in work, so that nobody loses the keyboard focus. */
class Waiting {
  #said = make("span", { class: "quiet" });
  #bar;

  constructor(job) {
    this.title = titleOf(job);
    this.#bar = make("progress", { max: 1, value: 0, "aria-label": `Progress of ${this.title}` });
    const { name, path } = endingOf(job);
    const onclick = guarded(problem, () => ask(path, { method: "POST" }).then(look));
    const end = { type: "button", class: "plain", "aria-label": `${name} ${this.title}`, onclick };
    this.element = make("li", {},
      make("a", { href: `#job/${job.job_id}` }, this.title),
      job.source.type !== "live" && this.#bar, // nobody knows how long it will be
      this.#said,
      make("button", end, name),
    );
    this.show(job);
  }

  show(job) {
    this.#bar.value = job.progress;
    this.#said.textContent = standingOf(job);
  }
}

/** Show the jobs in work, the oldest first. Returns the ids of those that are no more. */
function showQueue(jobs) {
  for (const job of jobs) {
    if (waiting.has(job.job_id)) waiting.get(job.job_id).show(job);
    else {
      waiting.set(job.job_id, new Waiting(job));
      queue.append(waiting.get(job.job_id).element);
    }
  }
  const still = new Set(jobs.map(({ job_id }) => job_id));
  const ended = [...waiting.keys()].filter((id) => !still.has(id));
  for (const id of ended) {
    announce(`${waiting.get(id).title} has ended`);
    waiting.get(id).element.remove();
    waiting.delete(id);
  }
  find("#queue-title").hidden = queue.hidden = waiting.size === 0;
  return ended;
}

/** Look at the queue, and soon again while it is visible and has jobs. */
const look = guarded(problem, async () => {
  clearTimeout(timer);
  const { data } = await ask(`v1/jobs?limit=100&order=asc&status=${ACTIVE.join(",")}`);
  if (showQueue(data).length) await load();
  clearTimeout(timer);
  if (data.length) timer = setTimeout(() => visible() && look(), AGAIN_MS);
});

/** Load the newest jobs that are over, or with *next* the page after those that are shown. A search is for words and names. */
async function load(next = null) {
  find("#jobs-none").hidden = true;
  const sought = search.value.trim();
  const queries = next ?? (sought ? [{ q: sought }, { name: sought }] : [{}]);
  const pages = admitted()
    ? await Promise.all(queries.map(async (query) => ({ query, ...(await ask(`v1/jobs?${new URLSearchParams({ limit: 20, ...query })}`)) })))
    : [];
  if (!admitted()) showQueue([]);
  const before = new Set(chosen().map(({ job_id: id }) => id));
  if (!next) {
    box.replaceChildren();
    shown.clear();
  }
  const found = pages.flatMap(({ query, data }) => data.filter(({ matches }) => !query.q || matches?.length > 0));
  for (const job of found) if (!ACTIVE.includes(job.status) && !shown.has(job.job_id)) box.append(row(job));
  for (const { job, select } of shown.values()) select.checked = before.has(job.job_id);
  cursors = pages.filter((page) => page.has_more).map(({ query, next_cursor: cursor }) => ({ ...query, cursor }));
  more.hidden = !cursors.length;
  find("#jobs-none").textContent = sought ? "No job has these words or this name." : "Nothing yet. What you say or upload appears here.";
  find("#jobs-none").hidden = box.children.length > 0 || found.length > 0;
  find("#jobs-search").hidden = !sought && !box.children.length;
  showChosen();
  if (shown.size) await offerFormats();
}

const visible = () => !find("#files-view").hidden && !document.hidden;

/** Load the lists again if they are visible. */
export function showJobs() {
  if (!visible()) return;
  guarded(problem, () => load())();
  if (admitted()) look();
}

search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(showJobs, SEARCH_MS);
});
find("#jobs-search").addEventListener("submit", (event) => event.preventDefault());
find("#jobs-all").addEventListener("change", ({ target }) => {
  for (const { select } of shown.values()) select.checked = target.checked;
  showChosen();
});
find("#jobs-zip").addEventListener("click", guarded(problem, saveChosen));
find("#jobs-delete").addEventListener("click", guarded(problem, deleteChosen));

more.addEventListener("click", guarded(problem, () => load(cursors)));
for (const news of ["jobs", "key", "visibilitychange"]) document.addEventListener(news, showJobs);
