// Follows a channel: the session that it shows, then the next one, for as long as the page is open.

import { refusal, root } from "./api.js";

const TYPES = ["word", "partial", "segment", "speakers.revised", "corrected", "translation", "job.completed", "job.failed", "job.canceled"];
const AGAIN_MS = 5000;
const REFUSALS = {
  401: { code: "invalid_token", status: 401, detail: "This link does not belong to a channel" },
  404: { code: "channel_not_found", status: 404, detail: "This channel does not exist" },
};

/**
 * Call *hear* with every event of the sessions that the channel shows. *standing* is called with "waiting", "connected"
 * and "reconnecting". Throws Problem if the channel cannot be read; otherwise it never returns.
 */
export function watch(channelId, { token, hear, standing }) {
  const address = new URL(`v1/channels/${channelId}/events`, root);
  address.searchParams.set("token", token);
  let last = "";
  return new Promise((_, reject) => {
    const open = () => {
      if (last) address.searchParams.set("last_event_id", last);
      const source = new EventSource(address);
      source.onopen = () => standing("waiting");
      for (const type of TYPES) {
        source.addEventListener(type, ({ data, lastEventId }) => {
          last = lastEventId;
          standing("connected");
          hear({ type, ...JSON.parse(data) });
        });
      }
      source.onerror = async () => {
        standing("reconnecting");
        if (source.readyState !== EventSource.CLOSED) return; // it connects again by itself
        const problem = await refused(address);
        if (problem) reject(problem);
        else setTimeout(open, AGAIN_MS);
      };
    };
    open();
  });
}

/** Return why the server refuses *address* for good; null if trying again may help. */
async function refused(address) {
  const answer = await fetch(address, { method: "HEAD" }).catch(() => null);
  if (answer === null || answer.ok) return null;
  const problem = refusal(answer.status, REFUSALS[answer.status]);
  return problem.passing || answer.status === 429 ? null : problem;
}
