// Shows which of the server's models hears which languages, and whether speakers are told apart, in the views for speech
// and files.

import { root } from "./api.js";
import { code, make } from "./dom.js";
import { offerTargets } from "./languages.js";

const MAX_NAMED = 5; // with more languages only their number is shown

const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
const list = new Intl.ListFormat("en", { type: "conjunction" });

export async function showHearing() {
  const answer = await fetch(new URL("readyz", root)).catch(() => null);
  if (!answer?.ok) return;
  const { models, languages, bundled, speakers, endpointing, translates_to: targets } = await answer.json();
  offerTargets(targets ?? []);
  const hearing = models.filter(({ hears }) => hears.length).map(({ name, hears }) => `${name} for ${said(hears)}`);
  for (const choice of document.querySelectorAll("select[name=model]")) {
    choice.replaceChildren(choice.options[0], ...models.map(({ name }) => make("option", { value: name }, name)));
  }
  for (const choice of document.querySelectorAll(".diarize")) choice.hidden = !speakers;
  for (const choice of document.querySelectorAll(".semantic")) choice.hidden = !endpointing.includes("semantic");
  for (const line of document.querySelectorAll(".hears")) {
    line.replaceChildren(`Models: ${list.format(hearing)}. `);
    if (bundled) {
      const [bigger, brings] = languages.length > 1 ? ["small", "fewer errors"] : ["base", "other languages and fewer errors"];
      line.append(code(`scribewire models pull ${bigger}`), ` on the server brings ${brings}. `);
    }
    if (!speakers) line.append("To tell speakers apart, run ", code("scripts/setup speakers"), " on the server. ");
  }
  if (languages.length === 1) {
    for (const input of document.querySelectorAll("input[name=language]")) input.placeholder = names.of(languages[0]);
  }
}

const said = (languages) =>
  languages.length > MAX_NAMED ? `${languages.length} languages` : list.format(languages.map((one) => names.of(one)).sort());
