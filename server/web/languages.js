// Shows translations beside live words: the original, a translation, or both side by side, as the reader chooses.

import { find, make } from "./dom.js";

const PARAGRAPH_S = 1.5; // a pause that starts a new paragraph
const UNSPACED = new Set(["ja", "km", "lo", "my", "th", "yue", "zh"]);
const ORIGINAL = "original";
const KEPT_AS = "scribewire.lang"; // in localStorage: what the reader chose last
const PRUNE_AT = 400; // texts of one language; a page that is open for days must not grow
const NAMES = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

export class Translations {
  #box; // of the original words
  #pair = null; // around all boxes, once there is a translation
  #select = make("select", { "aria-label": "Language" });
  #languages = new Map(); // by code: {box, paragraph, end, who: what a paragraph has one of}
  #stream = 0; // whose words are numbered anew
  #early = []; // words of the original, whose language may be offered later
  #wanted; // what the address asks for, or what was chosen last

  /** *box* shows the original. ?lang= in the address of the page chooses, and nothing else is shown then. */
  constructor(box) {
    this.#box = box;
    const asked = new URLSearchParams(location.search).get("lang");
    this.#wanted = asked ?? stored();
    this.#select.addEventListener("change", () => this.#choose());
    for (const code of asked?.split(",") ?? []) if (code !== ORIGINAL && isLanguage(code) && !this.#languages.has(code)) this.#add(code);
  }

  clear() {
    for (const { box } of this.#languages.values()) box.replaceChildren();
  }

  /** Begin new paragraphs, because the times and numbers of the words to come start anew. */
  newStream() {
    this.#stream += 1;
    this.#early = [];
    for (const language of this.#languages.values()) language.paragraph = null;
  }

  /**
   * Take a translation, or a word, which belongs to the translation into its own language too. *said*: the language and
   * the speaker of what is translated. A translation of a corrected sentence takes the place of the earlier one.
   */
  hear(event, said = event) {
    const { type, target, text, word, spaced = true } = event;
    if (type === "translation") this.#say(target, text, { ...event, spaced: !UNSPACED.has(target), said });
    else if (this.#languages.has(event.language)) this.#say(event.language, word, { ...event, spaced, said });
    else if (event.language) {
      this.#early.push(event);
      if (this.#early.length > PRUNE_AT) this.#early.shift();
    }
  }

  #say(code, text, { first, start, end, channel, spaced, said }) {
    const language = this.#languages.get(code) ?? this.#add(code);
    const { box } = language;
    const unit = first !== undefined && `${this.#stream}.${first}`; // a word has none
    const before = unit && box.querySelector(`[data-unit="${unit}"]`);
    if (before) {
      before.textContent = /^ ?/u.exec(before.textContent)[0] + text;
      before.classList.add("corrected");
      return;
    }
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
    const who = [channel, said?.language, said?.speaker].join();
    const goesOn = language.paragraph && start - language.end <= PARAGRAPH_S && who === language.who;
    if (!goesOn) box.append((language.paragraph = make("p", { lang: code, dir: "auto" })));
    language.paragraph.append(make("span", { class: "final", "data-unit": unit }, (goesOn && spaced ? " " : "") + text));
    Object.assign(language, { end, who });
    while (box.querySelectorAll(".final").length > PRUNE_AT && box.children.length > 1) box.firstElementChild.remove();
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  /** Offer another language. */
  #add(code) {
    if (!this.#pair) {
      this.#pair = make("div", { class: "pair" });
      this.#box.replaceWith(this.#pair);
      this.#pair.append(this.#box);
      const place = document.querySelector("header .tools");
      if (place) place.prepend(this.#select);
      else this.#pair.before(make("label", { class: "field languages" }, "Shown ", this.#select));
      this.#select.append(make("option", { value: ORIGINAL }, "Original"));
    }
    const label = `Captions in ${NAMES.of(code)}`;
    const box = make("div", { class: "live", role: "region", "aria-label": label, "aria-live": "polite", tabindex: "0" });
    const language = { box, paragraph: null, end: 0, who: "" };
    this.#languages.set(code, language);
    this.#pair.append(box);
    this.#select.append(
      make("option", { value: code }, NAMES.of(code)),
      make("option", { value: `${ORIGINAL},${code}` }, `Original and ${NAMES.of(code)}`),
    );
    const known = [...this.#select.options].some(({ value }) => value === this.#wanted);
    this.#show(known ? this.#wanted : this.#wanted === null ? `${ORIGINAL},${code}` : this.#select.value);
    const heard = this.#early.filter((event) => event.language === code);
    this.#early = this.#early.filter((event) => event.language !== code);
    for (const event of heard) this.hear(event);
    return language;
  }

  #choose() {
    this.#wanted = this.#select.value;
    try {
      localStorage.setItem(KEPT_AS, this.#wanted);
    } catch {
      // This browser stores nothing for this page: the choice holds as long as it is open.
    }
    this.#show(this.#wanted);
  }

  #show(choice) {
    this.#select.value = choice;
    const shown = new Set(choice.split(","));
    this.#box.hidden = !shown.has(ORIGINAL);
    for (const [code, { box }] of this.#languages) {
      box.hidden = !shown.has(code);
      box.scrollTop = box.scrollHeight;
    }
  }
}

function stored() {
  try {
    return localStorage.getItem(KEPT_AS);
  } catch {
    return null; // as above
  }
}

function isLanguage(code) {
  try {
    return Boolean(NAMES.of(code));
  } catch {
    return false; // no tag of a language
  }
}

/** Let people order translations only where somebody makes them, and say into which languages. */
export function offerTargets(targets) {
  for (const field of document.querySelectorAll(".translate")) {
    field.hidden = !targets.length;
    if (!targets.includes("*")) find("input", field).placeholder = targets.join(", ");
  }
}
