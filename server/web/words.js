// Shows live words as they come: final ones stay, and after them are words that may still change.

import { make } from "./dom.js";

const PARAGRAPH_S = 1.5; // a pause that starts a new paragraph
const LOGGED = 20; // closed segments that stay in the live region

export class LiveText {
  #box;
  #log;
  #voices = new Map(); // by channel; undefined where all are heard together

  /** *box* shows the words and scrolls with them; *log*, a live region, gets whole segments for screen readers. */
  constructor(box, log = null) {
    this.#box = box;
    this.#log = log;
    this.clear();
  }

  clear() {
    this.#box.replaceChildren();
    this.#log?.replaceChildren();
    this.newStream();
  }

  /** Take an event of a job. Events without words are ignored. */
  hear(event) {
    if (event.type === "word") this.#following(() => this.#voice(event).word(event));
    else if (event.type === "partial") this.#following(() => this.#voice(event).partially(event));
    else if (event.type === "segment") this.#segment(event);
  }

  /** Begin a new paragraph, because the times of the words to come start anew. */
  newStream() {
    for (const voice of this.#voices.values()) voice.show("");
    this.#voices.clear();
  }

  /** Return the voice that an event is of. */
  #voice({ channel, speaker }) {
    if (!this.#voices.has(channel)) this.#voices.set(channel, new Voice(this.#box, speaker));
    return this.#voices.get(channel);
  }

  #segment(event) {
    const { text, speaker } = event;
    this.#voice(event).show("");
    if (this.#log === null || !text) return;
    this.#log.append(make("p", {}, speaker ? `${speaker}: ${text}` : text));
    if (this.#log.children.length > LOGGED) this.#log.firstElementChild.remove();
  }

  /** Do *work*, and scroll to the end of the text if the reader was there. */
  #following(work) {
    const atEnd = this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight < 80;
    work();
    if (atEnd) this.#box.scrollTop = this.#box.scrollHeight;
  }
}

/** What is said on one channel, or on all together. It has paragraphs of its own. */
class Voice {
  #box;
  #speaker;
  #paragraph = null;
  #partial = make("span", { class: "partial" });
  #endedAt = 0; // the end of the last word, in seconds
  #gap = " "; // between words; not every script has one

  constructor(box, speaker) {
    this.#box = box;
    this.#speaker = speaker;
  }

  word({ word, start, end, spaced = true }) {
    const paragraph = this.#paragraphAt(start);
    const first = paragraph.querySelector(".final") === null;
    this.#partial.before(make("span", { class: "final" }, (spaced && !first ? " " : "") + word));
    this.#endedAt = end;
    this.#gap = spaced ? " " : "";
    this.show(withoutFirst(word, this.#partial.textContent.trim(), spaced));
  }

  partially({ text, start }) {
    if (text) this.#paragraphAt(start);
    this.show(text);
  }

  /** Show *text* as the words that may still change. */
  show(text) {
    this.#partial.textContent = text && this.#gap + text;
  }

  /** Return the paragraph of a word that starts at *start*. The partial is at its end. */
  #paragraphAt(start) {
    const paused = start - this.#endedAt > PARAGRAPH_S && this.#paragraph?.querySelector(".final");
    if (this.#paragraph === null || paused) {
      const label = this.#speaker ? [make("span", { class: "speaker" }, `${this.#speaker}: `)] : [];
      this.#paragraph = make("p", {}, ...label, this.#partial);
      this.#box.append(this.#paragraph);
    }
    return this.#paragraph;
  }
}

/** Return *partial* without its first word, which is now final as *word* or as another one. */
function withoutFirst(word, partial, spaced) {
  if (spaced) return partial.split(" ").slice(1).join(" ");
  return partial.startsWith(word) ? partial.slice(word.length) : "";
}
