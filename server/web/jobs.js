// The jobs of this key: those in work as a queue with their progress, and the recent ones.

import { ask, getKey } from "./api.js";
import { announce, find, make, quiet } from "./dom.js";
import { clock, moment } from "./format.js";
import { guarded } from "./problems.js";

const AGAIN_MS = 5000; // between two looks at the queue; the smallest plan allows 30 requests a minute
const ACTIVE = ["queued", "processing"];

const box = find("#jobs");
const queue = find("#queue");
const more = find("#jobs-more");
const problem = find("#jobs-problem");
const waiting = new Map(); // the rows of the queue by the jobs' ids
let cursor = null;
let timer;

export const titleOf = ({ source }) =>
  source.filename ?? source.url ?? (source.type === "live" ? "Live session" : "Upload");

/** How a job in work is ended: a live session keeps its words, any other job is given up. */
export const endingOf = ({ job_id, source }) =>
  source.type === "live"
    ? { name: "Finish", path: `v1/jobs/${job_id}/finish`, done: "Finished" }
    : { name: "Cancel", path: `v1/jobs/${job_id}/cancel`, done: "It will stop at once, or at its next sentence." };

function row(job) {
  const parts = [
    moment(job.created_at),
    job.duration !== null && clock(job.duration),
    job.language,
  ].filter(Boolean);
  return make("li", {},
    make("a", { href: `#job/${job.job_id}` }, titleOf(job)),
    quiet(parts.join(" · ")),
    make("span", { class: `badge ${job.status}` }, job.status),
  );
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
      this.#bar,
      this.#said,
      make("button", end, name),
    );
    this.show(job);
  }

  show({ status, stage, progress }) {
    this.#bar.value = progress;
    const working = stage === "downloading" ? "Fetching the audio" : `${Math.round(progress * 100)} %`;
    this.#said.textContent = status === "queued" ? "Waiting for its turn" : working;
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

/** Load the newest jobs that are over, or with *next* the page after those that are shown. */
async function load(next = null) {
  find("#jobs-none").hidden = true;
  if (!getKey()) {
    showQueue([]);
    box.replaceChildren();
    more.hidden = true;
    find("#jobs-none").hidden = false;
    return;
  }
  const page = await ask(`v1/jobs?limit=20${next ? `&cursor=${encodeURIComponent(next)}` : ""}`);
  if (!next) box.replaceChildren();
  box.append(...page.data.filter(({ status }) => !ACTIVE.includes(status)).map(row));
  cursor = page.next_cursor;
  more.hidden = !page.has_more;
  find("#jobs-none").hidden = box.children.length > 0 || page.data.length > 0;
}

const visible = () => !find("#files-view").hidden && !document.hidden;

/** Load the lists again if they are visible. */
export function showJobs() {
  if (!visible()) return;
  guarded(problem, () => load())();
  if (getKey()) look();
}

more.addEventListener("click", guarded(problem, () => load(cursor)));
for (const news of ["jobs", "key", "visibilitychange"]) document.addEventListener(news, showJobs);
