// Shows the server's model, its languages and whether it tells speakers apart in the views for speech and files, and
// offers the languages for choice.

import { root } from "./api.js";
import { code } from "./dom.js";

const MAX_NAMED = 5; // with more languages only their number is shown

const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
const list = new Intl.ListFormat("en", { type: "conjunction" });

export async function showHearing() {
  const answer = await fetch(new URL("readyz", root)).catch(() => null);
  if (!answer?.ok) return;
  const { model, languages, bundled, speakers, endpointing, warnings } = await answer.json();
  for (const choice of document.querySelectorAll(".diarize")) choice.hidden = !speakers;
  for (const choice of document.querySelectorAll(".semantic")) choice.hidden = !endpointing.includes("semantic");
  for (const line of document.querySelectorAll(".hears")) {
    line.replaceChildren(`Heard by ${model}, in ${said(languages)}. `);
    if (bundled) {
      line.append(code("scribewire models pull base"), " on the server brings other languages and fewer errors. ");
    }
    if (!speakers) line.append("It cannot tell speakers apart: ", code("scripts/setup speakers"), " on the server helps. ");
    line.append(...warnings.map(({ message }) => `${message}. `));
  }
  if (languages.length === 1) {
    for (const input of document.querySelectorAll("input[name=language]")) input.placeholder = names.of(languages[0]);
  }
}

const said = (languages) =>
  languages.length > MAX_NAMED ? `${languages.length} languages` : list.format(languages.map((one) => names.of(one)).sort());
