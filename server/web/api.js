// Requests to the server: its address, the API key of this browser, and refusals as Problems. All pages use it.

/** The address of the server. A proxy may add a prefix to it; this module is one folder below the pages. */
export const root = new URL("../", import.meta.url);

const KEPT_AS = "scribewire.key";
let key = stored();

export const getKey = () => key;

/** Whether this page was opened under a name that only the server's own machine has. */
export const AT_HOME = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

let owner = false;
let asked = null;

/** Whether this page was opened by the owner of the server, on the server's own machine: requests need no key then. */
export const isOwner = () => owner;

/** Whether the server answers requests of this page. */
export const admitted = () => owner || key !== null;

/** Find out whether the owner opened this page. The event "key" tells the views. */
export const admission = () => (asked ??= findOwner());

async function findOwner() {
  if (!AT_HOME || !(await serverFacts())?.owner) return;
  if (key && (await get("v1/usage", { Authorization: `Bearer ${key}` }))?.status !== 401) return;
  owner = true;
  setKey(null); // the server refuses the one that was stored
}

/** Return what the server says of itself to anybody; null if it does not answer. */
export async function serverFacts() {
  const answer = await get("", { Accept: "application/json" });
  return answer?.ok ? answer.json() : null;
}

const get = (path, headers) => fetch(new URL(path, root), { headers }).catch(() => null);

/** Store *value* in this browser; null deletes the stored key. The event "key" tells all views about it. */
export function setKey(value) {
  key = value;
  try {
    if (value) localStorage.setItem(KEPT_AS, value);
    else localStorage.removeItem(KEPT_AS);
  } catch {
    // This browser stores nothing for this page, so the key is kept as long as the page is open.
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

/** Return the address below which requests with this key go: test keys belong to the sandbox. */
export const base = () => (key?.startsWith("sw_test_") ? new URL("sandbox/", root) : root);

/** A refusal of the server (RFC 9457). *code* is stable, *detail* is for people. */
export class Problem extends Error {
  constructor(body) {
    super(body.detail ?? body.title);
    this.code = body.code;
    this.status = body.status;
    this.body = body;
  }

  /** Whether trying again may help. */
  get passing() {
    return this.status >= 500 || ["ingest_busy", "too_many_connections", "rate_limited"].includes(this.code);
  }
}

/** The server did not answer. */
export class Gone extends Error {
  constructor() {
    super("The server does not answer. It may be restarting, or the network is down.");
    this.passing = true;
  }
}

/** Request *path* and return the JSON of the answer, or null for 204. *options* are fetch()'s. Throws Problem or Gone. */
export async function ask(path, { method = "GET", body, headers = {}, bearer = key, ...options } = {}) {
  const sent = { ...headers };
  if (bearer) sent.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path, base()), { method, headers: sent, body: body && JSON.stringify(body), ...options });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Gone();
  }
  if (answer.status === 204) return null;
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw refusal(answer.status, said);
  return said;
}

/** Make a Problem of an error answer, even if it comes from a proxy. */
export function refusal(status, said) {
  return new Problem(said?.code ? said : { code: "unknown", status, detail: `The server answered ${status}.` });
}

/** Return a link of the server on the origin of this page, because the server may know itself by another name. */
export const own = (link) => new URL(link.slice(link.lastIndexOf("/v1/jobs/") + 1), base());

/** The same for a WebSocket. */
export function socketAddress(link, query = {}) {
  const url = own(link);
  url.protocol = url.protocol.replace("http", "ws");
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url;
}

/** Get a token for the events of one job, which may be part of a link. */
export const eventsToken = (jobId, lasting = { ttl_seconds: 3600 }) =>
  ask("v1/tokens", { method: "POST", body: { job_id: jobId, scope: "events", ...lasting } });

/** Get the names of all files that the server can make of a transcript. */
export const outputFormats = async () => (await ask("v1/formats")).outputs.map(({ name }) => name);

export const newIdempotencyKey = () => ({ "Idempotency-Key": crypto.getRandomValues(new Uint32Array(4)).join("-") });

/** Run *work*; repeat it for *most* ms while it fails with an error that may pass. */
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

/** Wait between two attempts. */
export const pause = (tries) => new Promise((resolve) => setTimeout(resolve, Math.min(5000, 250 * 2 ** tries)));
