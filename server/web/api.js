// The server as these pages talk to it: where it is, with which key, and its refusals as Problems.

/** Where the server is. Its pages may lie below a proxy's prefix; this module is one folder below them. */
export const root = new URL("../", import.meta.url);

const KEPT_AS = "scribewire.key";
let key = stored();

export const getKey = () => key;

/** Keep *value* in this browser; null forgets it. Everybody who shows something of the key is told. */
export function setKey(value) {
  key = value;
  try {
    if (value) localStorage.setItem(KEPT_AS, value);
    else localStorage.removeItem(KEPT_AS);
  } catch {
    // A browser that keeps nothing for us: the key lives as long as the page.
  }
  document.dispatchEvent(new Event("key"));
}

function stored() {
  try {
    return localStorage.getItem(KEPT_AS);
  } catch {
    return null; // as above
  }
}

/** Where this key is at home: test keys belong to the sandbox. */
export const base = () => (key?.startsWith("sw_test_") ? new URL("sandbox/", root) : root);

/** What the server said no with (RFC 9457); *code* is stable, *detail* is for people. */
export class Problem extends Error {
  constructor(body) {
    super(body.detail ?? body.title);
    this.code = body.code;
    this.status = body.status;
    this.body = body;
  }

  /** Another try may help. */
  get passing() {
    return this.status >= 500 || ["ingest_busy", "too_many_connections", "rate_limited"].includes(this.code);
  }
}

/** Nobody answered. */
export class Gone extends Error {
  constructor() {
    super("The server does not answer. It may be restarting, or the network is down.");
    this.passing = true;
  }
}

/** The JSON that *path* answers; null for 204. Raises Problem, Gone. */
export async function ask(path, { method = "GET", body, headers = {}, bearer = key, signal } = {}) {
  const sent = { ...headers };
  if (bearer) sent.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path, base()), { method, headers: sent, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Gone();
  }
  if (answer.status === 204) return null;
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw refusal(answer.status, said);
  return said;
}

/** The Problem of an answer, also of one that some proxy gave. */
export function refusal(status, said) {
  return new Problem(said?.code ? said : { code: "unknown", status, detail: `The server answered ${status}.` });
}

/** A link that the server gave, on the origin that this page came from: it may know itself by another name. */
export const own = (link) => new URL(link.slice(link.lastIndexOf("/v1/jobs/") + 1), base());

/** The same for a WebSocket. */
export function socketAddress(link, query = {}) {
  const url = own(link);
  url.protocol = url.protocol.replace("http", "ws");
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url;
}

/** A token for the events of one job, which may travel in a link. */
export const eventsToken = (jobId, ttl_seconds = 3600) =>
  ask("v1/tokens", { method: "POST", body: { job_id: jobId, scope: "events", ttl_seconds } });

export const newIdempotencyKey = () => ({ "Idempotency-Key": crypto.getRandomValues(new Uint32Array(4)).join("-") });

/** Do *work*, again and again while it fails in passing, for *most* ms. */
export async function persistently(work, { most = 120_000, told = () => {} } = {}) {
  const until = performance.now() + most;
  for (let tries = 0; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      if (!error.passing || performance.now() > until) throw error;
      told(error);
      await pause(tries);
    }
  }
}

/** What lies between two tries. */
export const pause = (tries) => new Promise((resolve) => setTimeout(resolve, Math.min(5000, 250 * 2 ** tries)));
