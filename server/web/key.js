// The dialog for the API key: makes a free one with one click, or takes a pasted one. Views wait here for a key.

import { AT_HOME, admission, admitted, ask, getKey, serverFacts, setKey } from "./api.js";
import { announce, find } from "./dom.js";
import { counted, inHours, inMinutes } from "./format.js";
import { DISMISSED, Said, guarded, tell } from "./problems.js";

const dialog = find("#key-dialog");
const problem = find("[role=alert]", dialog);
const pasted = find("input", dialog);

/** The webhook secret of the account that was just made. The server shows it only once. */
export let webhookSecret = null;

/** Wait until there is a key, or for the owner; open the dialog if there is none. Throws DISMISSED if it is closed. */
export async function needKey() {
  await admission();
  if (!admitted()) await askForKey();
}

export function askForKey() {
  tell(problem, null);
  pasted.value = "";
  find("#key-own").hidden = !AT_HOME;
  dialog.showModal();
  showHoldings();
  return new Promise((resolve, reject) => {
    const closed = () => (dialog.returnValue === "done" ? resolve() : reject(DISMISSED));
    dialog.addEventListener("close", closed, { once: true });
  });
}

/** Say what a free key holds before it is made. */
async function showHoldings() {
  const free = (await serverFacts())?.free_key;
  if (!free) return;
  const holds = [
    free.transcriptions_per_month === null ? "any number of recordings" : counted(free.transcriptions_per_month, "recording"),
    free.audio_hours_per_month !== null && `${counted(free.audio_hours_per_month, "hour")} of audio`,
  ].filter(Boolean);
  find("#key-holds").textContent =
    `A free key holds ${holds.join(" and ")} a month, each up to ${inMinutes(free.audio_minutes_per_file)} long. ` +
    `Results are kept for ${inHours(free.retention_hours)}. When it is used up, wait for the next month, ` +
    "or ask whoever runs this server for a larger plan.";
}

function done(key, said) {
  setKey(key);
  announce(said);
  dialog.close("done");
}

/** Make an account with its first key. *bearer* is a sign-up token, if the operator requires one. */
async function create(bearer = null) {
  const made = await ask("v1/keys", { method: "POST", body: { name: "browser" }, bearer });
  webhookSecret = made.webhook_secret ?? null;
  done(made.key, "You have a key. It is kept in this browser.");
}

async function use(text) {
  if (!text) throw new Said("Paste a key or a sign-up token first.");
  if (!text.startsWith("sw_")) return create(text);
  const before = getKey();
  setKey(text);
  try {
    await ask("v1/usage");
  } catch (error) {
    setKey(before);
    throw error;
  }
  return done(text, "This key works. It is kept in this browser.");
}

find("#key-create").addEventListener("click", guarded(problem, () => create()));
find("#key-paste").addEventListener("submit", (event) => event.preventDefault());
find("#key-paste").addEventListener("submit", guarded(problem, () => use(pasted.value.trim())));
find("#key-close").addEventListener("click", () => dialog.close("dismissed"));
dialog.addEventListener("cancel", () => { dialog.returnValue = "dismissed"; });
