// The view for files and addresses: uploads audio and makes a job of it.

import { Gone, ask, base, getKey, newIdempotencyKey, refusal } from "./api.js";
import { find, make } from "./dom.js";
import { bytes } from "./format.js";
import { needKey } from "./key.js";
import { orderFrom } from "./order.js";
import { Said, guarded } from "./problems.js";

const FORMATS = ["json", "srt", "vtt", "txt"];
const problem = find("#files-problem");
const zone = find("#drop");
const list = find("#uploads");

/** The files of jobs that were made on this page. Their audio can be played with the transcript. */
export const files = new Map();

/** Send the *chosen* files one after the other. For a single file its job is shown. */
async function upload(chosen) {
  await needKey();
  for (const file of chosen) {
    const record = await sendRow(file);
    files.set(record.job_id, file);
    if (chosen.length === 1) location.hash = `#job/${record.job_id}`;
  }
  document.dispatchEvent(new Event("jobs"));
}

/** Show one file with its progress and a button to cancel it. */
async function sendRow(file) {
  const bar = make("progress", { max: 1, value: 0, "aria-label": `Upload of ${file.name}` });
  const said = make("span", { class: "quiet" });
  const cancel = make("button", { type: "button", class: "plain" }, "Cancel");
  const row = make("li", {}, make("strong", {}, file.name), bar, said, cancel);
  list.append(row);
  try {
    return await send(file, {
      signal: (request) => cancel.addEventListener("click", () => request.abort()),
      progress(sent, all) {
        bar.value = sent / all;
        said.textContent = sent < all ? `${bytes(sent)} of ${bytes(all)}` : "Looking at it …";
      },
    });
  } finally {
    row.remove();
  }
}

/** Upload and return the record of the new job. XMLHttpRequest is used because fetch() reports no progress. */
function send(file, { signal, progress }) {
  const form = new FormData();
  const order = { ...orderFrom(find("#files-order")), output_formats: FORMATS.join(","), word_timestamps: "true" };
  for (const [name, value] of Object.entries(order)) form.append(name, value);
  form.append("file", file, file.name);
  const request = new XMLHttpRequest();
  request.open("POST", new URL("v1/transcribe", base()));
  const headers = { Authorization: `Bearer ${getKey()}`, Prefer: "respond-async", ...newIdempotencyKey() };
  for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
  request.responseType = "json";
  signal(request);
  return new Promise((resolve, reject) => {
    request.upload.onprogress = ({ loaded, total }) => progress(loaded, total);
    request.onload = () => {
      if (request.status < 300) resolve(request.response);
      else reject(refusal(request.status, request.response));
    };
    request.onerror = () => reject(new Gone());
    request.onabort = () => reject(new Said(`The upload of ${file.name} was canceled.`));
    request.send(form);
  });
}

async function sendAddress() {
  const url = find("#url").value.trim();
  if (!url) throw new Said("Paste the address of an audio or video file first.");
  await needKey();
  const body = { ...orderFrom(find("#files-order")), url, output_formats: FORMATS, word_timestamps: true };
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
