// The account view: the API key of this browser, the limits of its plan, and how much of them is used.

import { admitted, ask, getKey, isOwner, setKey } from "./api.js";
import { showChannels } from "./channels.js";
import { announce, copy, find, make, quiet } from "./dom.js";
import { counted, day, inHours, inMinutes, plain } from "./format.js";
import { askForKey, webhookSecret } from "./key.js";
import { guarded } from "./problems.js";

const LIMITS = {
  requests_per_minute: (count) => `${counted(count, "request")} a minute`,
  audio_minutes_per_file: (count) => `${inMinutes(count)} of audio in one file`,
  upload_mib: (count) => `${count.toLocaleString("en")} MiB in one upload`,
  active_jobs: (count) => `${counted(count, "job")} at a time`,
  live_sessions: (count) => `${counted(count, "live session")} at a time`,
  retention_hours: (count) => `Results are kept for ${inHours(count)}`,
};

const problem = find("#account-problem");

/** Load the account and show it. */
export const showAccount = guarded(problem, async () => {
  const key = getKey();
  find("#with-key").hidden = !key;
  find("#without-key").hidden = Boolean(key) || isOwner();
  find("#owner").hidden = !isOwner();
  find("#account-usage").hidden = find("#account-channels").hidden = true; // until the server has answered
  if (!admitted()) return;
  find("#key-shown").textContent = key && `${key.slice(0, 12)}…${key.slice(-4)}`;
  find("#secret").hidden = webhookSecret === null;
  find("#secret-shown").textContent = webhookSecret ?? "";
  const { plan, limits, usage } = await ask("v1/usage");
  find("#plan").textContent = plan;
  find("#usage").replaceChildren(...usage.flatMap(used));
  find("#limits").replaceChildren(
    ...Object.entries(LIMITS).filter(([name]) => limits[name] !== null).map(([name, said]) => make("li", {}, said(limits[name]))),
  );
  find("#account-usage").hidden = isOwner();
  await showChannels();
  find("#account-channels").hidden = false;
});

function used({ name, limit: most, used: count, resets_at: again }) {
  const audio = name === "audio_seconds";
  const title = audio ? "audio" : plain(name);
  const amount = (value) => (audio ? counted(Math.ceil(value / 60), "minute") : value.toLocaleString("en"));
  const shown = most === null ? `${amount(count)} used, no limit` : `${amount(count)} of ${amount(most)} used`;
  return [
    make("dt", {}, title),
    make("dd", {},
      most !== null && make("meter", { max: most || 1, value: count, high: most * 0.8, "aria-label": title }),
      make("span", {}, shown),
      most !== null && quiet(` · resets ${day(again)}`),
    ),
  ];
}

find("#key-get").addEventListener("click", guarded(problem, askForKey));
find("#key-copy").addEventListener("click", guarded(problem, () => copy(getKey(), "Key")));
find("#secret-copy").addEventListener("click", guarded(problem, () => copy(webhookSecret, "Webhook secret")));
find("#key-forget").addEventListener("click", () => {
  if (!confirm("Forget this key? Without a copy of it you cannot reach its jobs.")) return;
  setKey(null);
  announce("Forgotten");
});
document.addEventListener("key", showAccount);
