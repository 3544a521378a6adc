// Names for the speakers of a transcript. This browser keeps them for each job, and the server never learns them.

import { find, make } from "./dom.js";
import { playFrom } from "./player.js";

const KEPT_AS = "scribewire.speakers.";
const MAX_CHARS = 40;

export class Speakers {
  #box;
  #text;
  #job = "";
  #names = {}; // what the transcript calls a speaker -> what the reader does

  /** *box* is a fieldset for the names; *text* is the element with the transcript. */
  constructor(box, text) {
    this.#box = box;
    this.#text = text;
  }

  /** Offer a field for each speaker of the transcript of *job*, and show the names that they were given before. */
  show(job) {
    this.#job = job;
    this.#names = stored(job);
    const speakers = [...new Set([...this.#labels()].map((label) => label.dataset.speaker))].sort();
    this.#box.hidden = !speakers.length;
    find("div", this.#box).replaceChildren(...speakers.map((speaker) => this.#field(speaker)));
    this.#rename();
  }

  /** Hide the fields. Call it when the transcript is left. */
  clear() {
    this.#box.hidden = true;
    this.#text.classList.remove("named");
  }

  /** Forget the names of a job that is deleted. */
  forget(job) {
    store(job, {});
  }

  #field(speaker) {
    const input = make("input", { maxlength: MAX_CHARS, placeholder: speaker, autocomplete: "off" });
    input.value = this.#names[speaker] ?? "";
    input.addEventListener("input", () => {
      this.#names[speaker] = input.value.trim();
      store(this.#job, this.#names);
      this.#rename();
    });
    return make("label", { class: "field" }, `${speaker} is `, input);
  }

  #rename() {
    this.#text.classList.toggle("named", Object.values(this.#names).some(Boolean));
    for (const label of this.#labels()) {
      const name = this.#names[label.dataset.speaker] || label.dataset.speaker;
      const button = label.closest("button");
      label.textContent = name;
      button.setAttribute("aria-label", playFrom(button.dataset.start, name));
    }
  }

  #labels() {
    return this.#text.querySelectorAll(".speaker");
  }
}

function stored(job) {
  try {
    return JSON.parse(localStorage.getItem(KEPT_AS + job)) ?? {};
  } catch {
    return {}; // This browser stores nothing for this page.
  }
}

function store(job, names) {
  const given = Object.entries(names).filter(([, name]) => name);
  try {
    if (given.length) localStorage.setItem(KEPT_AS + job, JSON.stringify(Object.fromEntries(given)));
    else localStorage.removeItem(KEPT_AS + job);
  } catch {
    // As above: the names are shown as long as the transcript is.
  }
}
