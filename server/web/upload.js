// The view for files and addresses: uploads audio and makes a job of it.

import { Gone, ask, base, getKey, newIdempotencyKey, outputFormats, pause, refusal } from "./api.js";
import { find, make } from "./dom.js";
import { bytes } from "./format.js";
import { needKey } from "./key.js";
import { orderFrom } from "./order.js";
import { Said, guarded, sentence } from "./problems.js";

const FULL = new Set(["concurrency_limited", "rate_limited"]); // the account has no room for one more job just now
const AGAIN_MS = 5000;
const problem = find("#files-problem");
const zone = find("#drop");
const list = find("#uploads");

/** The files of jobs that were made on this page. Their audio can be played with the transcript. */
export const files = new Map();

let line = Promise.resolve(); // what is sent before the next file

/** Send the *chosen* files one after the other, each with a row from the beginning. A single file's job is shown. */
async function upload(chosen) {
  await needKey();
  const alone = chosen.length === 1;
  const rows = chosen.map((file) => new Row(file, { alone }));
  line = Promise.allSettled([line]).then(() => sendAll(rows));
  const [record] = await line;
  if (alone && record) location.hash = `#job/${record.job_id}`;
}

/** Send the files of *rows*. Returns their jobs, null for those that were refused or canceled. */
async function sendAll(rows) {
  const records = [];
  for (const row of rows) {
    const record = await row.send();
    if (record) files.set(record.job_id, row.file);
    records.push(record);
    document.dispatchEvent(new Event("jobs"));
  }
  return records;
}

/** One file in the queue of uploads, with its progress and a button that takes it out. */
class Row {
  #bar;
  #said = make("span", { class: "quiet" }, "Waiting");
  #row;
  #leave = new AbortController();
  #alone;
  #once = newIdempotencyKey(); // so that what is sent again becomes one job

  constructor(file, { alone }) {
    this.file = file;
    this.#alone = alone;
    this.#bar = make("progress", { max: 1, value: 0, "aria-label": `Upload of ${file.name}` });
    const onclick = () => this.#cancel();
    const cancel = { type: "button", class: "plain", "aria-label": `Cancel ${file.name}`, onclick };
    this.#row = make("li", {}, make("strong", {}, file.name), this.#bar, this.#said, make("button", cancel, "Cancel"));
    list.append(this.#row);
  }

  /** Return the new job, null if the file is not sent. Throws the refusal of a file that was chosen alone. */
  async send() {
    try {
      const record = await this.#sent();
      this.#row.remove();
      return record;
    } catch (error) {
      if (this.#alone || this.#leave.signal.aborted) {
        this.#row.remove();
        if (this.#alone) throw error;
      } else this.#refused(error);
      return null;
    }
  }

  /** Send the file as soon as the plan has room for one more job, and again if the server was away. */
  async #sent() {
    const progress = (sent, all) => this.#progress(sent, all);
    const order = fileOrder(); // as the fields were when the file was chosen
    for (let tries = 0; ; tries += 1) {
      this.#leave.signal.throwIfAborted();
      try {
        return await send(this.file, order, { left: this.#leave.signal, progress, once: this.#once });
      } catch (error) {
        if (!FULL.has(error.code) && !error.passing) throw error;
        this.#said.textContent = error.passing
          ? "The server does not answer. The file will be sent again by itself."
          : "Waiting for another job to end";
        this.#bar.value = 0;
        await (error.passing ? pause(tries) : new Promise((resolve) => setTimeout(resolve, AGAIN_MS)));
      }
    }
  }

  #progress(sent, all) {
    this.#bar.value = sent / all;
    this.#said.textContent = sent < all ? `${bytes(sent)} of ${bytes(all)}` : "Checking the file …";
  }

  #cancel() {
    this.#leave.abort(new Said(`The upload of ${this.file.name} was canceled.`));
    this.#row.remove();
  }

  /** Keep the row, so that the user sees which of the files was not taken, and why. */
  #refused(error) {
    this.#bar.remove();
    this.#said.textContent = sentence(error);
    this.#said.className = "refused";
    this.#said.setAttribute("role", "alert");
    const button = find("button", this.#row);
    button.textContent = "Remove";
    button.setAttribute("aria-label", `Remove ${this.file.name}`);
  }
}

/** Return what the fields order. A file whose speech is hidden in part is not kept. */
function fileOrder() {
  const order = orderFrom(find("#files-order"));
  if (order.redact) delete order.record;
  return order;
}

/** Transcribe the *file* of a job once more, each channel as a speaker. */
export function again(file) {
  find("#files-order select[name=channels]").value = "separate";
  location.hash = "#files";
  return upload([file]);
}

/** Upload and return the record of the new job. XMLHttpRequest is used because fetch() reports no progress. */
async function send(file, asked, { left, progress, once }) {
  const formats = await outputFormats();
  const form = new FormData();
  const order = { ...asked, output_formats: formats.join(","), word_timestamps: "true" };
  for (const [name, value] of Object.entries(order)) form.append(name, value);
  form.append("file", file, file.name);
  const request = new XMLHttpRequest();
  request.open("POST", new URL("v1/transcribe", base()));
  const key = getKey();
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), Prefer: "respond-async", ...once };
  for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
  request.responseType = "json";
  left.addEventListener("abort", () => request.abort());
  return new Promise((resolve, reject) => {
    request.upload.onprogress = ({ loaded, total }) => progress(loaded, total);
    request.onload = () => {
      if (request.status < 300) resolve(request.response);
      else reject(refusal(request.status, request.response));
    };
    request.onerror = () => reject(new Gone());
    request.onabort = () => reject(left.reason);
    request.send(form);
  });
}

async function sendAddress() {
  const url = find("#url").value.trim();
  if (!url) throw new Said("Paste the address of an audio or video file first.");
  await needKey();
  const output_formats = await outputFormats();
  const body = { ...fileOrder(), url, output_formats, word_timestamps: true };
  const headers = { Prefer: "respond-async", ...newIdempotencyKey() };
  const record = await ask("v1/transcribe", { method: "POST", body, headers });
  find("#url").value = "";
  location.hash = `#job/${record.job_id}`;
}

const chosen = find("#file");
chosen.addEventListener("change", guarded(problem, async () => {
  const picked = [...chosen.files];
  chosen.value = ""; // so that the same file can be picked again
  await upload(picked);
}));
find("#url-form").addEventListener("submit", (event) => event.preventDefault());
find("#url-form").addEventListener("submit", guarded(problem, sendAddress));

// Files may be dropped anywhere on the page.
addEventListener("dragover", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  location.hash = "#files";
  zone.classList.add("over");
});
addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) zone.classList.remove("over");
});
addEventListener("drop", guarded(problem, async (event) => {
  zone.classList.remove("over");
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  await upload([...event.dataTransfer.files]);
}));
