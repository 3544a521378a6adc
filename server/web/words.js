// Words on the screen while they come: final ones stay as they are, behind them stands what may still change.

import { make } from "./dom.js";

const PARAGRAPH_S = 1.5; // a pause that starts a new paragraph
const LOGGED = 20; // closed segments that stay in the live region

export class LiveText {
  #box;
  #log;
  #paragraph = null;
  #partial = make("span", { class: "partial" });
  #endedAt = 0; // of the last word, seconds

  /** *box* shows the words and scrolls with them; *log*, a live region, gets whole segments for screen readers. */
  constructor(box, log = null) {
    this.#box = box;
    this.#log = log;
    this.clear();
  }

  clear() {
    this.#box.replaceChildren();
    this.#log?.replaceChildren();
    this.#paragraph = null;
    this.#partial.textContent = "";
  }

  get empty() {
    return this.#paragraph === null;
  }

  /** Take an event of a job. Those that are not about words are none of ours. */
  hear(event) {
    if (event.type === "word") this.#following(() => this.#word(event));
    else if (event.type === "partial") this.#following(() => this.#show(event.text));
    else if (event.type === "segment") this.#segment(event);
  }

  /** What comes next is on another clock, and never continues a paragraph. */
  newStream() {
    this.#paragraph = null;
    this.#show("");
  }

  #word({ word, start, end, spaced = true }) {
    if (this.#paragraph === null || start - this.#endedAt > PARAGRAPH_S) {
      this.#paragraph = make("p", {});
      this.#box.append(this.#paragraph);
    }
    this.#endedAt = end;
    const first = this.#paragraph.childNodes.length === 0;
    this.#paragraph.append(make("span", { class: "final" }, (spaced && !first ? " " : "") + word));
    const [, ...rest] = this.#partial.textContent.trim().split(" ");
    this.#show(rest.join(" ")); // it was the partial's first word: the others stay where they are
  }

  #show(text) {
    this.#partial.textContent = text && ` ${text}`;
    (this.#paragraph ?? this.#box).append(this.#partial);
  }

  #segment({ text }) {
    this.#show("");
    if (this.#log === null || !text) return;
    this.#log.append(make("p", {}, text));
    if (this.#log.children.length > LOGGED) this.#log.firstElementChild.remove();
  }

  /** Do *work*, and stay at the end of the text if the reader was there. */
  #following(work) {
    const atEnd = this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight < 80;
    work();
    if (atEnd) this.#box.scrollTop = this.#box.scrollHeight;
  }
}
