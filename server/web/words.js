// Shows live words as they come: final ones stay, and after them are words that may still change.

import { make } from "./dom.js";
import { Translations } from "./languages.js";
import { Voices } from "./voices.js";

const PARAGRAPH_S = 1.5; // a pause that starts a new paragraph
const LANGUAGE_NAMES = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
const LOGGED = 20; // closed segments that stay in the live region

export class LiveText {
  #box;
  #log;
  #translations;
  #speech = new Map(); // by channel; undefined where all are heard together
  #words = new Map(); // by index, because who says them may be revised
  #voices = new Voices();

  /** *box* shows the words and scrolls with them; *log*, a live region, gets whole segments for screen readers. */
  constructor(box, log = null) {
    this.#box = box;
    this.#log = log;
    this.#translations = new Translations(box);
    this.clear();
  }

  clear() {
    this.#box.replaceChildren();
    this.#log?.replaceChildren();
    this.#translations.clear();
    this.#voices = new Voices();
    this.newStream();
  }

  /** Take an event of a job. Events without words are ignored. */
  hear(event) {
    if (event.type === "translation") this.#translations.hear(event, this.#words.get(event.first));
    else if (event.type === "word") this.#translations.hear(event);
    if (event.type === "word") this.#following(() => this.#words.set(event.index, this.#of(event).word(event)));
    else if (event.type === "corrected") this.#following(() => this.#correct(event));
    else if (event.type === "partial") this.#following(() => this.#of(event).partially(event));
    else if (event.type === "segment") this.#segment(event);
    else if (event.type === "speakers.revised") this.#following(() => this.#revise(event.words));
  }

  /** Return which words are corrected with a final word's *element*: {first, last, text}; null if they are of an earlier job. */
  at(element) {
    const [first, said] = [...this.#words].find(([, one]) => one.element === element) ?? [];
    return said ? { first, last: said.last ?? first, text: said.text } : null;
  }

  /** Take what a person changed: other words, another speaker, or a speaker's name. */
  #correct({ first, last, words, speaker, name, into }) {
    if (words) this.#replace(first, last, words);
    else if (first !== undefined) this.#revise([{ first, last, speaker: speaker ?? undefined }]);
    else if (into) this.#revise([...this.#words].filter(([, one]) => one.speaker === speaker).map(([at]) => ({ first: at, last: at, speaker: into })));
    else this.#voices.call(this.#box, speaker, name);
  }

  /** Show *words* in place of those from *first* to *last*, marked for a moment. */
  #replace(first, last, words) {
    const text = words.map(({ word, spaced = true }, at) => (spaced && at ? " " : "") + word).join("");
    for (let index = first; index <= last; index += 1) {
      const said = this.#words.get(index);
      if (!said) continue; // it left the screen, or its job
      const before = said.text === "" ? "" : /^\s*/u.exec(said.element.textContent)[0];
      said.text = index === first ? text : "";
      said.last = index === first ? last : undefined;
      const gap = before || (said.spaced && said.element.previousElementSibling?.matches(".final") ? " " : "");
      said.element.textContent = said.text && gap + said.text;
      said.element.classList.remove("corrected");
      if (index !== first) continue;
      void said.element.offsetWidth; // so that the mark begins again
      said.element.classList.add("corrected");
    }
    if (text) this.#log?.append(make("p", {}, `Corrected: ${text}`));
  }

  /** Begin a new paragraph, because the times and numbers of the words to come start anew. */
  newStream() {
    for (const speech of this.#speech.values()) speech.show("");
    this.#speech.clear();
    this.#words.clear();
    this.#translations.newStream();
  }

  /** Draw a line under all words so far. Those above an earlier line are removed: the page may be open for days. */
  divide() {
    if (!this.#box.children.length) return;
    this.newStream();
    const before = [...this.#box.children].findLastIndex((element) => element.tagName === "HR");
    for (const element of [...this.#box.children].slice(0, before + 1)) element.remove();
    this.#box.append(make("hr"));
  }

  /** Return the speech that an event is of. */
  #of({ channel, speaker }) {
    if (!this.#speech.has(channel)) this.#speech.set(channel, new Speech(this.#box, this.#voices, speaker));
    return this.#speech.get(channel);
  }

  #segment(event) {
    const { text, speaker, language } = event;
    this.#of(event).show("");
    if (this.#log === null || !text) return;
    this.#log.append(make("p", written(language), speaker && [make("bdi", {}, speaker), ": "], text));
    if (this.#log.children.length > LOGGED) this.#log.firstElementChild.remove();
  }

  /** Give runs of words other speakers. Screen readers are not told: what they have read stays as it was. */
  #revise(runs) {
    const changed = new Set();
    for (const { first, last, speaker } of runs) {
      for (let index = first; index <= last; index += 1) {
        const word = this.#words.get(index);
        if (!word || word.speaker === speaker) continue;
        word.speaker = speaker;
        changed.add(word);
      }
    }
    for (const speech of this.#speech.values()) speech.arrange(changed);
  }

  /** Do *work*, and scroll to the end of the text if the reader was there. */
  #following(work) {
    const atEnd = this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight < 80;
    work();
    const typing = this.#box.contains(document.activeElement) && document.activeElement.matches("input");
    if (atEnd && !typing) this.#box.scrollTop = this.#box.scrollHeight;
  }
}

/** What is said on one channel, or on all together. It has paragraphs of its own, of one speaker and language each. */
class Speech {
  #box;
  #voices;
  #speaker; // of the newest words
  #language; // of the newest words; undefined where the session has one
  #paragraphs = []; // {element, words}; without words yet also {speaker, language, paused}
  #partial = make("span", { class: "partial" });
  #endedAt = 0; // the end of the last word, in seconds
  #gap = " "; // between words; not every script has one

  constructor(box, voices, speaker) {
    this.#box = box;
    this.#voices = voices;
    this.#speaker = speaker;
  }

  /** Show a final word. Returns what arrange() needs to know of it. */
  word({ word, start, end, spaced = true, speaker, language }) {
    this.#speaker = speaker;
    this.#language = language;
    const paragraph = this.#paragraphAt(start);
    const first = !paragraph.words.length;
    const element = make("span", { class: "final" }, (spaced && !first ? " " : "") + word);
    const said = { element, text: word, spaced, speaker, language, paused: first && paragraph.paused };
    this.#partial.before(element);
    paragraph.words.push(said);
    this.#endedAt = end;
    this.#gap = spaced ? " " : "";
    this.show(withoutFirst(word, this.#partial.textContent.trim(), spaced));
    return said;
  }

  partially({ text, start, language = this.#language }) {
    this.#language = language;
    if (text) this.#paragraphAt(start);
    this.show(text);
  }

  /** Show *text* as the words that may still change. */
  show(text) {
    this.#partial.textContent = text && this.#gap + text;
  }

  /** Make paragraphs of one speaker again where words have *changed* theirs. */
  arrange(changed) {
    const has = ({ words }) => words.some((word) => changed.has(word));
    const first = this.#paragraphs.findIndex(has);
    if (first < 0) return;
    const from = Math.max(0, first - 1);
    const to = Math.min(this.#paragraphs.length, this.#paragraphs.findLastIndex(has) + 2);
    const old = this.#paragraphs.slice(from, to);
    const next = old.at(-1).element.nextSibling;
    const fresh = runs(old.flatMap(({ words }) => words)).map((words) => this.#remade(words));
    for (const { element } of old) element.remove();
    for (const { element } of fresh) this.#box.insertBefore(element, next);
    markLanguages([...fresh.map(({ element }) => element), next].filter(Boolean));
    this.#paragraphs.splice(from, old.length, ...fresh);
    const last = this.#paragraphs.at(-1);
    last?.element.append(this.#partial);
    if (last?.words.length) ({ speaker: this.#speaker, language: this.#language } = last.words[0]);
  }

  #remade(words) {
    words.forEach(({ element, text, spaced }, at) => {
      element.textContent = (spaced && at ? " " : "") + text;
      element.classList.add("moved");
    });
    return { element: this.#element(words[0], words.map(({ element }) => element)), words };
  }

  /** Make a paragraph. Its direction is that of its text: browsers leave out the name in a bdi. */
  #element({ speaker, language }, content) {
    const name = speaker && [make("bdi", {}, this.#voices.label(speaker)), ": "];
    return make("p", { ...this.#voices.mark(speaker), ...written(language) }, name, content);
  }

  /** Return the paragraph of a word that starts at *start*. The partial is at its end. */
  #paragraphAt(start) {
    const last = this.#paragraphs.at(-1);
    const begun = last && last.words.length > 0;
    const paused = begun ? start - this.#endedAt > PARAGRAPH_S : Boolean(last?.paused);
    const { speaker, language } = (begun ? last.words[0] : last) ?? {};
    const continues = speaker === this.#speaker && language === this.#language;
    if (last && continues && !(begun && paused)) return last;
    if (last && !begun) this.#paragraphs.pop().element.remove();
    const now = { speaker: this.#speaker, language: this.#language };
    const element = this.#element(now, [this.#partial]);
    const made = { element, words: [], ...now, paused };
    this.#paragraphs.push(made);
    this.#box.append(element);
    markLanguages([element]);
    return made;
  }
}

/** Show the name of the language at those of *paragraphs* that are in another one than the paragraph before them. */
export function markLanguages(paragraphs) {
  const language = (element) => element && (element.matches("[data-language]") ? element : element.querySelector("[data-language]"));
  for (const paragraph of paragraphs) {
    const [before, now] = [language(paragraph.previousElementSibling), language(paragraph)];
    now?.classList.toggle("other", Boolean(before) && before.lang !== now.lang);
  }
}

/** Return the attributes of text in *language*. markLanguages() shows its name. */
export function written(language) {
  return { dir: "auto", lang: language, "data-language": language && LANGUAGE_NAMES.of(language) };
}

/** Cut words that are still shown where the speaker or the language changes and where a pause was. */
function runs(words) {
  const found = [];
  for (const word of words.filter(({ element }) => element.isConnected)) {
    const last = found.at(-1);
    const continues = last && last[0].speaker === word.speaker && last[0].language === word.language;
    if (continues && !word.paused) last.push(word);
    else found.push([word]);
  }
  return found;
}

/** Return *partial* without its first word, which is now final as *word* or as another one. */
function withoutFirst(word, partial, spaced) {
  if (spaced) return partial.split(" ").slice(1).join(" ");
  return partial.startsWith(word) ? partial.slice(word.length) : "";
}
