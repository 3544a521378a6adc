// The card with the live link of a session: how long it lasts, who can open it, its QR code and the look of its overlay.

import { AT_HOME, base, eventsToken, getKey } from "./api.js";
import { overlayLink, ownPage } from "./channels.js";
import { announce, copy, find } from "./dom.js";
import { guarded } from "./problems.js";
import { drawQr } from "./qr.js";

const card = find("#speak-shared");
const field = find("#speak-link");
const problem = find("#speak-problem");
let shared = null; // {jobId, channel} of the link that is shown

/** Show the link of a job, or of the *channel* that shows it; null: of none. */
export async function share(jobId, channel) {
  shared = { jobId, channel };
  await putLink();
  card.hidden = false;
  field.focus(); // screen readers read its label, which explains the link
  field.select();
}

export function closeShare() {
  card.hidden = true;
}

/** Replace the link, if one is shown, because the session goes on as another job. */
export const renewShare = guarded(problem, async (jobId) => {
  if (card.hidden || shared.channel) return;
  shared.jobId = jobId;
  await putLink();
  announce("The session goes on in a new job, with a new live link.");
});

/** Make a link with which others can read along, and see nothing else of this account. */
async function putLink() {
  const { channel } = shared;
  const { link, reachable } = channel ? ofChannel(channel) : await ofSession();
  find("#speak-link-label").textContent = channel
    ? `Anyone with this link can read what is said in the channel ${channel.name}, and sees nothing else of yours`
    : "Anyone with this link can read along, and sees nothing else of yours";
  field.value = find("#speak-open").href = link;
  find("#speak-lasting-field").hidden = find("#speak-channels").hidden = Boolean(channel);
  find("#speak-reach").hidden = reachable;
  find("#speak-qr").toggleAttribute("hidden", !reachable); // a phone cannot open it
  if (reachable) drawQr(find("#speak-qr"), link);
}

async function ofSession() {
  const seconds = Number(find("#speak-lasting").value);
  const { token, page_url: page, reachable } = await eventsToken(shared.jobId, { after_end_seconds: seconds });
  const here = new URL(`live/${shared.jobId}#token=${token}`, base()).href;
  return { link: isHome() && reachable ? page : here, reachable: !isHome() || reachable };
}

function ofChannel({ page_url: page, reachable }) {
  return { link: isHome() && reachable ? page : ownPage(page), reachable: !isHome() || reachable };
}

/** Whether this page was opened under a name that only this machine has. */
const isHome = () => AT_HOME && !getKey()?.startsWith("sw_test_");

find("#speak-lasting").addEventListener("change", guarded(problem, putLink));
find("#speak-copy").addEventListener("click", guarded(problem, () => copy(field.value, "Link")));
find("#speak-overlay").addEventListener("click", guarded(problem, () =>
  copy(overlayLink(field.value, find(".overlay-look", card)), "Overlay link")));
