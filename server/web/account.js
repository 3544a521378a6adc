// The account view: the API key of this browser, the limits of its plan, and how much of them is used.

import { ask, getKey, setKey } from "./api.js";
import { showChannels } from "./channels.js";
import { announce, copy, find, make, quiet } from "./dom.js";
import { moment, plain } from "./format.js";
import { askForKey, webhookSecret } from "./key.js";
import { guarded } from "./problems.js";

const LIMITS = {
  requests_per_minute: "requests a minute",
  audio_minutes_per_file: "minutes of audio in one file",
  upload_mib: "MiB in one upload",
  active_jobs: "jobs at a time",
  live_sessions: "live sessions at a time",
  retention_hours: "hours for which results are kept",
};

const problem = find("#account-problem");

/** Load the account and show it. */
export const showAccount = guarded(problem, async () => {
  const key = getKey();
  find("#with-key").hidden = !key;
  find("#without-key").hidden = Boolean(key);
  if (!key) return;
  find("#key-shown").textContent = `${key.slice(0, 12)}…${key.slice(-4)}`;
  find("#secret").hidden = webhookSecret === null;
  find("#secret-shown").textContent = webhookSecret ?? "";
  const { plan, limits, usage } = await ask("v1/usage");
  find("#plan").textContent = plan;
  find("#usage").replaceChildren(...usage.flatMap(used));
  await showChannels();
  find("#limits").replaceChildren(...Object.entries(LIMITS).map(([name, said]) => limit(limits[name], said)));
});

function used({ name, limit: most, used: count, resets_at: again }) {
  const shown = most === null ? `${count} used, no limit` : `${count} of ${most} used`;
  return [
    make("dt", {}, plain(name)),
    make("dd", {},
      most !== null && make("meter", { max: most || 1, value: count, high: most * 0.8, "aria-label": plain(name) }),
      make("span", {}, shown),
      most !== null && quiet(` · anew ${moment(again)}`),
    ),
  ];
}

const limit = (value, said) =>
  make("li", {}, make("strong", {}, value === null ? "Any number of" : value.toLocaleString("en")), ` ${said}`);

find("#key-get").addEventListener("click", guarded(problem, askForKey));
find("#key-copy").addEventListener("click", guarded(problem, () => copy(getKey(), "Key")));
find("#secret-copy").addEventListener("click", guarded(problem, () => copy(webhookSecret, "Webhook secret")));
find("#key-forget").addEventListener("click", () => {
  if (!confirm("Forget this key? Without a copy of it, its jobs are out of reach.")) return;
  setKey(null);
  announce("Forgotten");
});
document.addEventListener("key", showAccount);
