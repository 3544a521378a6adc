// The list of the recent jobs of this key.

import { ask, getKey } from "./api.js";
import { find, make, quiet } from "./dom.js";
import { clock, moment } from "./format.js";
import { guarded } from "./problems.js";

const AGAIN_MS = 10_000; // between two requests while a job runs; the smallest plan allows 30 requests a minute
const OVER = ["completed", "failed", "canceled"];

const box = find("#jobs");
const more = find("#jobs-more");
const problem = find("#jobs-problem");
let cursor = null;
let timer;

export const titleOf = ({ source }) =>
  source.filename ?? source.url ?? (source.type === "live" ? "Live session" : "Upload");

function row(job) {
  const parts = [
    moment(job.created_at),
    job.duration !== null && clock(job.duration),
    job.language,
  ].filter(Boolean);
  const status = job.status === "processing" ? `${Math.round(job.progress * 100)} %` : job.status;
  return make("li", {},
    make("a", { href: `#job/${job.job_id}` }, titleOf(job)),
    quiet(parts.join(" · ")),
    make("span", { class: `badge ${job.status}` }, status),
  );
}

/** Load the newest jobs, or with *next* the page after those that are shown. */
async function load(next = null) {
  clearTimeout(timer);
  find("#jobs-none").hidden = true;
  if (!getKey()) {
    box.replaceChildren();
    more.hidden = true;
    find("#jobs-none").hidden = false;
    return;
  }
  const page = await ask(`v1/jobs?limit=20${next ? `&cursor=${encodeURIComponent(next)}` : ""}`);
  if (!next) box.replaceChildren();
  box.append(...page.data.map(row));
  cursor = page.next_cursor;
  more.hidden = !page.has_more;
  find("#jobs-none").hidden = box.children.length > 0;
  if (page.data.some(({ status }) => !OVER.includes(status))) timer = setTimeout(showJobs, AGAIN_MS);
}

const reload = guarded(problem, () => load());

/** Load the list again if it is visible. */
export function showJobs() {
  if (!find("#files-view").hidden && !document.hidden) reload();
}

more.addEventListener("click", guarded(problem, () => load(cursor)));
for (const news of ["jobs", "key", "visibilitychange"]) document.addEventListener(news, showJobs);
