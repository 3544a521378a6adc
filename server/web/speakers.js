// Names for the speakers of a text. The server keeps them as corrections of the job, so every reader and file has them.

import { ask, persistently } from "./api.js";
import { find, make } from "./dom.js";
import { playFrom } from "./player.js";
import { guarded } from "./problems.js";

const MAX_CHARS = 64;
const SAVE_MS = 600; // after the last key

export class Speakers {
  #box;
  #text;
  #save;
  #job = "";
  #names = new Map(); // what the text calls a speaker -> what the reader does
  #saved = new Map(); // as the server has it
  #labels = new Map(); // what requests call a speaker
  #fields = new Map(); // by speaker
  #timer;

  /** *box* is a fieldset for the names; *text* is the element with the text; *problem* shows errors. */
  constructor(box, text, problem) {
    this.#box = box;
    this.#text = text;
    this.#save = guarded(problem, () => this.#send());
  }

  /** Offer a field for each speaker of the text of *job*. */
  show(job) {
    this.clear();
    this.#job = job;
    this.renew();
  }

  /** Go on with the same people in another *job*. */
  goOn(job) {
    this.#job = job;
    this.#startAnew();
  }

  #startAnew() {
    [this.#saved, this.#labels] = [new Map(), new Map()]; // what is under way has the old ones
  }

  /** Offer fields for the speakers who are in the text by now, and name them. Fields that are there stay. */
  renew() {
    const marks = new Map([...this.#shown()].map((label) => [label.dataset.speaker, label.closest("[data-voice]")]));
    const speakers = [...marks.keys()].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
    const fields = speakers.map((speaker) => this.#field(speaker, marks.get(speaker)?.dataset.voice));
    const shown = find("div", this.#box);
    if (fields.length !== shown.children.length || fields.some((field, at) => field !== shown.children[at])) {
      shown.replaceChildren(...fields);
    }
    this.#box.hidden = !speakers.length;
    this.#rename();
    if (this.#unsaved().length) this.#soon();
  }

  /** Hide the fields. Call it when the text is left. */
  clear() {
    clearTimeout(this.#timer);
    if (this.#unsaved().length) this.#save();
    this.#box.hidden = true;
    this.#fields.clear();
    this.#names.clear();
    this.#startAnew();
    this.#text.classList.remove("named");
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#save, SAVE_MS);
  }

  /** Return the names that the server does not have, of speakers who are in the text. */
  #unsaved() {
    const here = new Set([...this.#shown()].map(({ dataset }) => dataset.speaker));
    return [...this.#names].filter(([speaker, name]) => here.has(speaker) && (this.#saved.get(speaker) ?? null) !== name);
  }

  async #send() {
    const names = this.#unsaved();
    if (!names.length) return;
    const [saved, labels, path] = [this.#saved, this.#labels, `v1/jobs/${this.#job}/corrections`];
    for (const [speaker, name] of names) saved.set(speaker, name);
    const changes = names.map(([speaker, name]) => ({ speaker: labels.get(speaker) ?? speaker, name }));
    try {
      const made = await persistently(() => ask(path, { method: "POST", body: { changes } }));
      made.changes.forEach(({ speaker }, at) => labels.set(names[at][0], speaker));
    } catch (error) {
      for (const [speaker] of names) saved.delete(speaker);
      throw error;
    }
    this.#rename();
  }

  #field(speaker, voice) {
    if (!this.#fields.has(speaker)) this.#fields.set(speaker, this.#newField(speaker));
    const field = this.#fields.get(speaker);
    field.dataset.voice = voice;
    return field;
  }

  #newField(speaker) {
    const input = make("input", { maxlength: MAX_CHARS, placeholder: speaker, autocomplete: "off" });
    input.value = /^S\d+$/.test(speaker) ? "" : speaker;
    input.addEventListener("input", () => {
      this.#names.set(speaker, input.value.trim());
      this.#rename();
      this.#soon();
    });
    input.addEventListener("change", () => this.#save());
    return make("label", { class: "field" }, make("span", { class: "voice" }, `Name of ${speaker}`), input);
  }

  #rename() {
    let named = false; // by the reader or by the order
    for (const label of this.#shown()) {
      const name = this.#names.get(label.dataset.speaker) || (this.#labels.get(label.dataset.speaker) ?? label.dataset.speaker);
      named ||= !/^S\d+$/.test(name);
      if (label.textContent !== name) label.textContent = name;
      const button = label.closest("button");
      button?.setAttribute("aria-label", playFrom(button.dataset.start, name));
    }
    this.#text.classList.toggle("named", named);
  }

  #shown() {
    return this.#text.querySelectorAll(".speaker");
  }
}
