// The form fields for a transcription that speech and files share: language, expected words, and what becomes of the text.

import { announce, find, make } from "./dom.js";

const MOST_TRACKS = 32; // of a container, as the API takes it

for (let number = 1; number <= MOST_TRACKS; number += 1) {
  find("#files-order select[name=track]").append(make("option", { value: number }, `track ${number}`));
}

for (const place of document.querySelectorAll(".order")) place.append(find("#order-options").content.cloneNode(true));

/** Return the request members for the fields in *place*, without the empty ones. Several languages are those to find. */
export function orderFrom(place) {
  const lines = [...place.querySelectorAll("textarea")].map(({ name, value }) => [name, listOf(value)]);
  const boxes = [...place.querySelectorAll("input:checked")];
  const checked = [...new Set(boxes.map(({ name }) => name))].map((name) => [
    name,
    boxes.filter((box) => box.name === name).map(({ value }) => value).join(","),
  ]);
  const written = [...place.querySelectorAll("input:not([type=checkbox])")].map(({ name, value }) => [name, value.trim()]);
  const several = written.find(([name, value]) => name === "language" && /[\s,]/.test(value));
  if (several) several.splice(0, 2, "languages", several[1].split(/[\s,]+/).filter(Boolean).join(","));
  const selected = [...place.querySelectorAll("select[name]")].map(({ name, value }) => [name, value]);
  return Object.fromEntries([...written, ...checked, ...lines, ...selected].filter(([, value]) => value));
}

/** Return the lines of a field as the text of a JSON array, which may have commas in it; nothing without lines. */
function listOf(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return lines.length ? JSON.stringify(lines) : "";
}

const KEYWORDS_AS = "scribewire.keywords"; // in localStorage: the terms that corrections added
const keywords = () => [...document.querySelectorAll(".order [name=keywords]")];

/** Add *term* to the names and terms that will be said, here and the next time that this page is opened. */
export function expect(term) {
  for (const field of keywords()) {
    const terms = field.value.split(",").map((one) => one.trim()).filter(Boolean);
    if (!terms.includes(term)) field.value = [...terms, term].join(", ");
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  try {
    localStorage.setItem(KEYWORDS_AS, keywords()[0].value);
  } catch {
    // This browser stores nothing for this page, so the term is there as long as the page is open.
  }
  announce(`“${term}” is a keyword of what you transcribe next.`);
}

try {
  for (const field of keywords()) {
    field.value = localStorage.getItem(KEYWORDS_AS) ?? "";
    field.addEventListener("change", () => localStorage.setItem(KEYWORDS_AS, field.value));
  }
} catch {
  // As above.
}
