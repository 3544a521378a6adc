// Names for the speakers of a text. This browser keeps them for each job, and the server never learns them.

import { find, make } from "./dom.js";
import { playFrom } from "./player.js";

const KEPT_AS = "scribewire.speakers.";
const MAX_CHARS = 40;

export class Speakers {
  #box;
  #text;
  #job = "";
  #names = new Map(); // what the text calls a speaker -> what the reader does
  #fields = new Map(); // by speaker

  /** *box* is a fieldset for the names; *text* is the element with the text. */
  constructor(box, text) {
    this.#box = box;
    this.#text = text;
  }

  /** Offer a field for each speaker of the text of *job*, and show the names that they were given before. */
  show(job) {
    this.clear();
    this.#job = job;
    this.#names = stored(job);
    this.renew();
  }

  /** Offer fields for the speakers who are in the text by now, and name them. Fields that are there stay. */
  renew() {
    const marks = new Map([...this.#labels()].map((label) => [label.dataset.speaker, label.closest("[data-voice]")]));
    const speakers = [...marks.keys()].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
    const fields = speakers.map((speaker) => this.#field(speaker, marks.get(speaker)?.dataset.voice));
    const shown = find("div", this.#box);
    if (fields.length !== shown.children.length || fields.some((field, at) => field !== shown.children[at])) {
      shown.replaceChildren(...fields);
    }
    this.#box.hidden = !speakers.length;
    this.#rename();
  }

  /** Hide the fields. Call it when the text is left. */
  clear() {
    this.#box.hidden = true;
    this.#fields.clear();
    this.#text.classList.remove("named");
  }

  /** Return the names that the reader gave, by what the text calls the speakers. */
  get names() {
    return new Map([...this.#names].filter(([, name]) => name));
  }

  /** Forget the names of a job that is deleted. */
  forget(job) {
    store(job, new Map());
  }

  #field(speaker, voice) {
    if (!this.#fields.has(speaker)) this.#fields.set(speaker, this.#newField(speaker));
    const field = this.#fields.get(speaker);
    field.dataset.voice = voice;
    return field;
  }

  #newField(speaker) {
    const input = make("input", { maxlength: MAX_CHARS, placeholder: speaker, autocomplete: "off" });
    input.value = this.#names.get(speaker) ?? "";
    input.addEventListener("input", () => {
      this.#names.set(speaker, input.value.trim());
      store(this.#job, this.#names);
      this.#rename();
    });
    return make("label", { class: "field" }, make("span", { class: "voice" }, `Name of ${speaker}`), input);
  }

  #rename() {
    let named = false; // by the reader or by the order
    for (const label of this.#labels()) {
      const name = this.#names.get(label.dataset.speaker) || label.dataset.speaker;
      named ||= !/^S\d+$/.test(name);
      if (label.textContent !== name) label.textContent = name;
      const button = label.closest("button");
      button?.setAttribute("aria-label", playFrom(button.dataset.start, name));
    }
    this.#text.classList.toggle("named", named);
  }

  #labels() {
    return this.#text.querySelectorAll(".speaker");
  }
}

function stored(job) {
  try {
    return new Map(Object.entries(JSON.parse(localStorage.getItem(KEPT_AS + job)) ?? {}));
  } catch {
    return new Map(); // This browser stores nothing for this page.
  }
}

function store(job, names) {
  const given = [...names].filter(([, name]) => name);
  try {
    if (given.length) localStorage.setItem(KEPT_AS + job, JSON.stringify(Object.fromEntries(given)));
    else localStorage.removeItem(KEPT_AS + job);
  } catch {
    // As above: the names are shown as long as the text is.
  }
}
