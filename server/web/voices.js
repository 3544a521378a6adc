// How the speakers of a text look: each has a colour and a sign of its own, so that colours are not needed.

import { make } from "./dom.js";

const LOOKS = 10; // in the style sheet, as many as a server tells apart

export class Voices {
  #people = []; // who have names, in the order in which they were seen
  #names = new Map(); // that people gave to speakers

  /**
   * Return the attributes of an element that is of *speaker*; none where nobody is known. S1 has the first look in every
   * view of a job, S2 the second. People with names have the last ones.
   */
  mark(speaker) {
    if (!speaker) return {};
    const number = Number(/^S(\d+)$/.exec(speaker)?.[1]);
    return { "data-voice": (number ? number - 1 : this.#fromTheEnd(speaker)) % LOOKS };
  }

  /** Make the label of a speaker, by the name that somebody gave. */
  label(speaker) {
    const label = named(speaker);
    label.textContent = this.#names.get(speaker) ?? speaker;
    return label;
  }

  /** Give *speaker* a *name* in *box* and in labels to come; null takes it back. */
  call(box, speaker, name) {
    this.#names.set(speaker, name ?? speaker);
    for (const label of box.querySelectorAll(".speaker")) if (label.dataset.speaker === speaker) label.textContent = name ?? speaker;
  }

  #fromTheEnd(name) {
    if (!this.#people.includes(name)) this.#people.push(name);
    return LOOKS - 1 - (this.#people.indexOf(name) % LOOKS);
  }
}

/** Make the label of a speaker, whom a reader may call by another name. */
export const named = (speaker) => make("b", { class: "speaker", "data-speaker": speaker }, speaker);
