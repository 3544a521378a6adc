// The main page: shows one view at a time, which the part of the address after # names.

import { admission } from "./api.js";
import { find } from "./dom.js";
import { showHearing } from "./hearing.js";
import "./speak.js";
import { showAccount } from "./account.js";
import "./estimator.js";
import { leaveJob, showJob } from "./job.js";
import { showJobs } from "./jobs.js";

const VIEWS = ["speak", "files", "job", "estimate", "account"];
const TITLES = { speak: "Speak", files: "Files", job: "Transcript", estimate: "Estimate", account: "Account" };
const OPENED = { files: showJobs, job: showJob, account: showAccount };

/** Show the view that the address names. With *moved* it also gets the keyboard focus. */
function route(moved) {
  const [named, ...rest] = location.hash.slice(1).split("/");
  const name = VIEWS.includes(named) ? named : "speak";
  for (const view of VIEWS) find(`#${view}-view`).hidden = view !== name;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.hash === `#${name === "job" ? "files" : name}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[name]} · Scribewire`;
  leaveJob();
  OPENED[name]?.(...rest);
  if (!moved) return;
  scrollTo(0, 0);
  find(`#${name}-view h1`).focus({ preventScroll: true });
}

addEventListener("hashchange", () => route(true));
admission();
route(false);
showHearing();
