// Puts the names that a reader gave to speakers into the files of a transcript.

import { unzip, zip } from "./zip.js";

const MAKERS = { srt: inLines, txt: inLines, vtt: inVoices, json: inJson };

/** Return *blob*, a file of a transcript in *format* (srt.de is a translated one), with *names* (by speaker) in place of S1, S2, … */
export async function renamed(blob, format, names) {
  if (!names.size) return blob;
  const [kind] = format.split(".");
  if (kind === "docx") return inWord(blob, names);
  return new Blob([MAKERS[kind](await blob.text(), names)], { type: blob.type });
}

/** Where a line begins with a speaker, perhaps after a mark that makes it read from right to left. */
function inLines(text, names) {
  return text.replaceAll(/^(\u200f?)([^:\n]+): /gmu, (all, mark, who) => (names.has(who) ? `${mark}${names.get(who)}: ` : all));
}

function inVoices(text, names) {
  return text.replaceAll(/^<v ([^>\n]+)>/gmu, (all, who) => (names.has(plain(who)) ? `<v ${escaped(names.get(plain(who)))}>` : all));
}

function inJson(text, names) {
  const speaker = (key, value) => (key === "speaker" && names.has(value) ? names.get(value) : value);
  return JSON.stringify(JSON.parse(text), speaker);
}

/** In a Word document the name has a run of its own. */
async function inWord(blob, names) {
  const files = await unzip(blob);
  const document = files.find(({ name }) => name === "word/document.xml");
  const text = new TextDecoder().decode(document.bytes).replaceAll(/(<w:b\/><w:bCs\/>.*?<w:t [^>]*>)(.*?): <\/w:t>/gsu,
    (all, before, who) => (names.has(plain(who)) ? `${before}${escaped(names.get(plain(who)))}: </w:t>` : all));
  document.bytes = new TextEncoder().encode(text);
  return new Blob([zip(files)], { type: blob.type });
}

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const plain = (text) => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
