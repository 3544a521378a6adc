// How the speakers of a text look: each has a colour and a sign of its own, so that colours are not needed.

import { make } from "./dom.js";

const LOOKS = 10; // in the style sheet, as many as a server tells apart

export class Voices {
  #numbers = new Map(); // by label, in the order in which they were seen

  /** Return the attributes of an element that is of *speaker*; none where nobody is known. */
  mark(speaker) {
    if (!speaker) return {};
    if (!this.#numbers.has(speaker)) this.#numbers.set(speaker, this.#numbers.size);
    return { "data-voice": this.#numbers.get(speaker) % LOOKS };
  }
}

/** Make the label of a speaker, whom a reader may call by another name. */
export const named = (speaker) => make("b", { class: "speaker", "data-speaker": speaker }, speaker);
