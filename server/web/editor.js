// Corrects the transcript of a job by keyboard or mouse. Every change is saved by itself, as a revision of the server's.

import { ask, persistently } from "./api.js";
import { make } from "./dom.js";
import { termIn, typeOver } from "./inplace.js";
import { guarded } from "./problems.js";
import { Voices } from "./voices.js";
import { written } from "./words.js";

const PARAGRAPH_S = 1.5; // a pause that starts a new paragraph
const LONG = 120; // words of a paragraph, after which the next sentence starts another one: a key press lays out one alone
const MOST = 1000; // changes of one request
const NAMES_AS = "scribewire.names"; // in localStorage: the speakers that were named, for other jobs
const MARK_AS = "scribewire.doubt"; // in localStorage: below which probability a word is doubtful
const EDITS_AS = "scribewire.edits."; // in sessionStorage, by job: what waits to be saved, and what can be taken back
const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];
const HELP = "Enter or a click corrects a word, Tab goes to the next doubtful one, Shift and arrows choose several, " +
  "1 to 9 give them to a speaker, Delete removes, Ctrl+Z takes back. Space plays, and Ctrl+Space while you type; " +
  "Ctrl and the up or down arrow change the speed. Ctrl+F finds, F3 finds the next. " +
  "Escape goes to the buttons above the text and back.";

/** Whether an earlier page of this tab left changes of *job* that the server does not have yet. */
export const unsaved = (job) => Boolean(stored(sessionStorage, EDITS_AS + job)?.waiting.length);

export class Editor {
  #job;
  #token;
  #player;
  #offer;
  #problem = make("p", { class: "problem", role: "alert", hidden: true });
  #said = make("span", { class: "quiet", role: "status" });
  #text = make("div", { class: "transcript", role: "region", "aria-label": "Words to correct", "aria-describedby": "editor-help" });
  #people = make("div", { class: "row" });
  #offers = make("span");
  #tools = {};
  #units = []; // {first, last, text, element, start, doubt}: what is changed together
  #drawn = new Map(); // {element, units} of the paragraphs on the page, by what they show
  #chosen = []; // the units that look chosen, and the one that has the focus
  #speakers = {}; // names by what requests call the speakers
  #revision = 0;
  #at = 0; // the unit that has the focus, and the other end of what is chosen
  #anchor = 0;
  #open = null; // {first, last, field}: what is being typed over
  #saving = false;
  #kept; // {waiting, undo, redo}: what survives a reload

  /** *box* gets the editor. *offer* is called with a term that may be added to the expected ones; without it none is offered. */
  constructor(box, { job, token = null, player, offer = null }) {
    this.#job = job;
    this.#token = token;
    this.#player = player;
    this.#offer = offer;
    this.#kept = stored(sessionStorage, EDITS_AS + job) ?? { waiting: [], undo: [], redo: [] };
    const help = make("p", { class: "quiet", id: "editor-help" }, HELP);
    const all = make("div", {}, this.#problem, this.#toolbar(), this.#finder(), this.#people, help, this.#text);
    box.replaceChildren(all);
    all.addEventListener("keydown", (event) => this.#anywhere(event), { capture: true });
    this.#text.addEventListener("click", (event) => this.#clicked(event));
    this.#text.addEventListener("keydown", (event) => this.#pressed(event));
  }

  /** Load the words, and save what an earlier page could not. Throws Problem. */
  async show() {
    await this.#load();
    await this.#flush();
  }

  // --- what there is -----------------------------------------------------------------------------------------------

  #guard = (work) => guarded(this.#problem, work);

  #toolbar() {
    const button = (name, work) => make("button", { type: "button", class: "plain", onclick: this.#guard(work) }, name);
    const mark = make("input", { type: "range", min: 0, max: 1, step: 0.05, value: stored(localStorage, MARK_AS) ?? 0.5 });
    const speed = make("select", {}, SPEEDS.map((rate) => make("option", { value: rate, selected: rate === 1 }, `${rate} ×`)));
    mark.addEventListener("input", () => {
      store(localStorage, MARK_AS, Number(mark.value));
      this.#markDoubts();
    });
    speed.addEventListener("change", () => this.#player.speed(Number(speed.value)));
    this.#tools = { mark, speed, undo: button("Undo", () => this.#back("undo")), redo: button("Redo", () => this.#back("redo")),
      doubtful: button("Next doubtful word", () => this.#toDoubtful(1)) };
    return make("div", { class: "row", role: "group", "aria-label": "Correcting" },
      this.#tools.undo, this.#tools.redo, this.#tools.doubtful,
      make("label", { class: "field" }, "Doubtful below", mark), make("label", { class: "field" }, "Speed", speed),
      this.#said, this.#offers);
  }

  #finder() {
    const what = make("input", { type: "search", "aria-label": "Find", placeholder: "Find", autocomplete: "off" });
    const by = make("input", { "aria-label": "Replace with", placeholder: "Replace with", autocomplete: "off" });
    const button = (name, work) => make("button", { type: "button", class: "plain", onclick: this.#guard(work) }, name);
    this.#tools.what = what;
    const form = make("form", { class: "row", role: "search", "aria-label": "Find and replace" }, what, by,
      make("button", { class: "plain" }, "Next"), // of the form, so that Enter presses it
      button("Replace all", () => this.#replaceAll(what.value, by.value)));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#findNext(what.value);
    });
    return form;
  }

  async #load() {
    this.#draw(await persistently(() => ask(this.#path("words"), this.#bearer)));
  }

  #path = (what, query = {}) =>
    `v1/jobs/${encodeURIComponent(this.#job)}/${what}?${new URLSearchParams({ ...query, ...(this.#token && { token: this.#token }) })}`;

  get #bearer() {
    return this.#token ? { bearer: null } : {};
  }

  #draw({ revision, speakers, words }) {
    const focused = this.#text.contains(document.activeElement) && this.#units[this.#at]?.first;
    const typing = this.#open && { ...this.#open, value: this.#open.field.value, place: this.#open.field.selectionStart };
    if (typing) this.#forget(typing.first, typing.last);
    this.#open = null; // so that the removed field saves nothing
    this.#revision = revision;
    this.#speakers = speakers;
    this.#units = unitsOf(words);
    this.#paragraphs();
    this.#player.attend(this.#text);
    this.#showPeople();
    this.#tools.undo.disabled = !this.#kept.undo.length;
    this.#tools.redo.disabled = !this.#kept.redo.length;
    if (typing) this.#retype(typing, typing.value, typing.place);
    else this.#choose(focused === false || focused === undefined ? this.#at : this.#unitOf(focused), { focus: focused !== false });
  }

  /** Show the units in paragraphs. Those that are as before stay: most of a long text does. */
  #paragraphs() {
    const voices = new Voices();
    const before = this.#drawn;
    this.#drawn = new Map();
    this.#units = paragraphsOf(this.#units).flatMap((units) => {
      const [{ speaker, name, language }] = units;
      const look = voices.mark(speaker);
      const shows = JSON.stringify([look, units]);
      const drawn = before.get(shows) ?? { units, element: this.#paragraph(units, look, name, language) };
      this.#drawn.set(shows, drawn);
      return drawn.units;
    });
    const made = [...this.#drawn.values()].map(({ element }) => element);
    const stays = new Set(made);
    for (const element of [...this.#text.children]) if (!stays.has(element)) element.remove();
    made.forEach((element, at) => {
      if (this.#text.children[at] !== element) this.#text.insertBefore(element, this.#text.children[at] ?? null);
    });
    if (!made.length) this.#text.replaceChildren(make("p", {}, "There are no words to correct."));
  }

  /** Draw the paragraphs of these words anew the next time, because what they show is no longer what was loaded. */
  #forget(first, last) {
    for (const [shows, { units }] of this.#drawn) {
      if (units.some((unit) => unit.last >= first && unit.first <= last)) this.#drawn.delete(shows);
    }
  }

  #paragraph(units, look, name, language) {
    for (const unit of units) {
      const { start, end, text, corrected } = unit;
      const word = { class: `word${corrected ? " corrected" : ""}`, role: "button", "data-start": start, "data-end": end, tabindex: -1 };
      unit.element = make("span", word, text || "⌫");
      this.#markDoubt(unit);
    }
    const content = units.flatMap(({ spaced, element }, at) => [spaced && at ? " " : "", element]);
    return make("p", look, name && make("b", { class: "speaker" }, name), make("span", written(language), content));
  }

  #markDoubts() {
    for (const unit of this.#units) this.#markDoubt(unit);
    this.#tools.mark.setAttribute("aria-valuetext", `${Math.round(this.#tools.mark.value * 100)} percent`);
  }

  #markDoubt({ element, doubt, text, corrected }) {
    const doubtful = doubt < Number(this.#tools.mark.value);
    element.classList.toggle("doubtful", doubtful);
    element.setAttribute("aria-label", `${text || "removed"}${doubtful ? ", doubtful" : corrected ? ", corrected" : ""}`);
  }

  #showPeople() {
    const names = stored(localStorage, NAMES_AS) ?? [];
    const fields = Object.entries(this.#speakers).map(([speaker, name]) => {
      const input = make("input", { maxlength: 64, placeholder: speaker, list: "speaker-names", autocomplete: "off" });
      input.value = name === speaker ? "" : name;
      input.addEventListener("change", this.#guard(() => this.#name(speaker, input.value.trim())));
      return make("label", { class: "field" }, `Name of ${speaker}`, input);
    });
    this.#people.replaceChildren(...fields, make("datalist", { id: "speaker-names" }, names.map((name) => make("option", { value: name }))));
    this.#people.hidden = !fields.length;
  }

  #say(text) {
    this.#said.textContent = text;
  }

  // --- choosing words ----------------------------------------------------------------------------------------------

  #unitOf = (number) => Math.max(0, this.#units.findIndex(({ last }) => last >= number));

  #choose(to, { focus = true, extend = false } = {}) {
    if (!this.#units.length) return;
    this.#at = Math.max(0, Math.min(this.#units.length - 1, to));
    if (!extend) this.#anchor = this.#at;
    const [low, high] = this.#range();
    for (const { element } of this.#chosen) {
      element.tabIndex = -1;
      element.classList.remove("chosen");
    }
    this.#chosen = this.#units.slice(low, high + 1);
    if (low < high) for (const { element } of this.#chosen) element.classList.add("chosen");
    this.#units[this.#at].element.tabIndex = 0;
    if (focus) this.#units[this.#at].element.focus();
  }

  #range = () => [Math.min(this.#at, this.#anchor), Math.min(this.#units.length - 1, Math.max(this.#at, this.#anchor))];

  /** Return the unit that is nearest to the chosen one in the line below, or with *step* -1 above. */
  #inLine(step) {
    const box = (at) => this.#units[at]?.element.getBoundingClientRect();
    const from = box(this.#at);
    const middle = from.left + from.width / 2;
    const beside = ({ top, height }) => Math.abs(top - from.top) < height / 2;
    let at = this.#at;
    while (box(at) && beside(box(at))) at += step;
    const line = box(at)?.top;
    const away = (one) => Math.abs((box(one).left + box(one).right) / 2 - middle);
    while (box(at + step) && Math.abs(box(at + step).top - line) < from.height / 2 && away(at + step) < away(at)) at += step;
    return at;
  }

  #clicked({ target, shiftKey }) {
    const at = this.#units.findIndex(({ element }) => element === target.closest(".word"));
    if (at < 0) return;
    this.#choose(at, { extend: shiftKey });
    this.#player.seek(this.#units[at].start);
    if (!shiftKey) this.#edit();
  }

  #pressed(event) {
    const { key, shiftKey, ctrlKey, metaKey, altKey } = event;
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[key];
    const line = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (!event.target.matches(".word") || altKey || event.defaultPrevented) return;
    if (ctrlKey || metaKey) {
      const way = { z: shiftKey ? "redo" : "undo", Z: "redo", y: "redo" }[key];
      if (!way) return;
      this.#guard(() => this.#back(way))();
    } else if (step !== undefined) this.#choose(this.#at + step, { extend: shiftKey });
    else if (line) this.#choose(this.#inLine(line), { extend: shiftKey });
    else if (key === "Tab") {
      if (!this.#toDoubtful(shiftKey ? -1 : 1)) return; // after the last one the focus leaves the text
    } else if (key === "Enter" || key === "F2") this.#edit();
    else if (key === " ") this.#play();
    else if (/^[1-9]$/.test(key)) this.#guard(() => this.#give(Number(key)))();
    else if (key === "Delete" || key === "Backspace") this.#guard(() => this.#replace(...this.#range(), ""))();
    else if (key.length === 1) {
      this.#edit(); // the field takes the key in place of the word
      return;
    } else return;
    event.preventDefault();
  }

  /** Take the keys that work in the whole editor, also while a word is typed over. */
  #anywhere(event) {
    const { key, shiftKey, target } = event;
    const { undo, redo, doubtful } = this.#tools;
    const ctrl = event.ctrlKey || event.metaKey;
    const typing = target === this.#open?.field;
    const faster = { ArrowUp: 1, ArrowDown: -1 }[key];
    if (ctrl && key === " ") this.#play();
    else if (ctrl && faster && !target.matches("select")) this.#changeSpeed(faster);
    else if (ctrl && key === "f") this.#toFind();
    else if (key === "F3" && !typing) this.#findNext(this.#tools.what.value, shiftKey ? -1 : 1);
    else if (key === "Escape" && !typing && target.matches(".word")) [undo, redo, doubtful].find((one) => !one.disabled).focus();
    else if (key === "Escape" && !typing) this.#choose(this.#at);
    else return;
    event.preventDefault();
  }

  #play() {
    if (!this.#player.toggle()) this.#say("There is no audio here yet. Choose the file first.");
  }

  #changeSpeed(step) {
    const { speed } = this.#tools;
    speed.selectedIndex = Math.max(0, Math.min(SPEEDS.length - 1, speed.selectedIndex + step));
    this.#player.speed(Number(speed.value));
    this.#say(`Speed ${speed.value} ×`);
  }

  /** Go to the field that finds, with what is chosen if these are several words. */
  #toFind() {
    const [low, high] = this.#range();
    if (low < high) this.#tools.what.value = textOf(this.#units.slice(low, high + 1));
    this.#tools.what.focus();
    this.#tools.what.select();
  }

  /** Go to the next doubtful word, or with *step* -1 to the one before. Returns whether there is one. */
  #toDoubtful(step) {
    for (let at = this.#at + step; at >= 0 && at < this.#units.length; at += step) {
      if (!this.#units[at].element.classList.contains("doubtful")) continue;
      this.#choose(at);
      this.#player.seek(this.#units[at].start);
      return true;
    }
    this.#say("There is no other doubtful word.");
    return false;
  }

  #findNext(what, step = 1) {
    const ranges = what.trim() ? this.#found(what.trim()) : [];
    const next = step > 0
      ? ranges.find(([from]) => from > this.#at) ?? ranges[0]
      : ranges.findLast(([, to]) => to < this.#range()[0]) ?? ranges.at(-1);
    this.#say(ranges.length ? `${ranges.indexOf(next) + 1} of ${ranges.length} found.` : "Not found.");
    if (!next) return;
    this.#choose(next[0]);
    this.#choose(next[1], { extend: true });
  }

  /** Return the ranges of units in which *what* is, in order and apart from each other. */
  #found(what) {
    let text = "";
    const ends = this.#units.map((unit) => (text += (unit.spaced && text ? " " : "") + unit.text).length);
    const ranges = [];
    for (const match of text.matchAll(pattern(what))) {
      const from = ends.findIndex((end) => end > match.index);
      const to = ends.findIndex((end) => end >= match.index + match[0].length);
      if (ranges.length && ranges.at(-1)[1] >= from) ranges.at(-1)[1] = to;
      else ranges.push([from, to]);
    }
    return ranges;
  }

  // --- changing them -----------------------------------------------------------------------------------------------

  /** Let the user type over what is chosen. */
  #edit() {
    const [from, to] = this.#range();
    this.#type(from, to);
  }

  #type(from, to) {
    const units = this.#units.slice(from, to + 1);
    if (!units.length) return null;
    const text = textOf(units);
    const field = typeOver(units.map(({ element }) => element), text, (said, key) => {
      if (this.#open?.field !== field) return; // the words were loaded again
      this.#open = null;
      if (key !== "blur") this.#choose(from);
      if (said !== null) this.#guard(() => this.#replace(from, to, said))();
      if (key.endsWith("Tab")) this.#toDoubtful(key === "Tab" ? 1 : -1);
    });
    this.#open = { first: units[0].first, last: units.at(-1).last, field };
    return field;
  }

  /** Open the field again after the words were loaded, with what was typed. */
  #retype({ first, last }, value, place = value.length) {
    const field = this.#type(this.#unitOf(first), this.#unitOf(last));
    if (!field) return;
    field.value = value;
    field.setSelectionRange(place, place);
  }

  #replace(from, to, text) {
    const units = this.#units.slice(from, to + 1);
    const before = textOf(units);
    const change = { first: units[0].first, last: units.at(-1).last, text };
    units.forEach(({ element }, at) => { element.textContent = at ? "" : text || "⌫"; }); // until the server has it
    this.#forget(change.first, change.last);
    this.#offerTerm(termIn(text, before));
    return this.#save({ changes: [change] });
  }

  #replaceAll(what, by) {
    if (!what.trim()) return this.#say("Enter what to find first.");
    const changes = this.#found(what.trim()).slice(0, MOST).map(([from, to]) => {
      const units = this.#units.slice(from, to + 1);
      return { first: units[0].first, last: units.at(-1).last, text: textOf(units).replaceAll(pattern(what.trim()), () => by.trim()) };
    });
    if (!changes.length) return this.#say("Not found.");
    return this.#save({ changes });
  }

  /** Give what is chosen to a speaker: one word is all that its paragraph says. */
  #give(number) {
    const [low, high] = this.#range();
    const within = (at) => (low < high ? at >= low && at <= high : this.#units[at].element.parentElement === this.#units[low].element.parentElement);
    const units = this.#units.filter((_, at) => within(at));
    const speaker = Object.keys(this.#speakers)[number - 1] ?? `S${number}`;
    return this.#save({ changes: [{ first: units[0].first, last: units.at(-1).last, speaker }] });
  }

  /** Name a speaker; with the name of another one both are the same. */
  #name(speaker, name) {
    const same = Object.keys(this.#speakers).find((one) => one !== speaker && name && this.#speakers[one] === name);
    const names = [name, ...(stored(localStorage, NAMES_AS) ?? []).filter((one) => one !== name)].filter(Boolean);
    store(localStorage, NAMES_AS, names.slice(0, 50));
    return this.#save({ changes: [same ? { speaker, into: same } : { speaker, name }] });
  }

  #back(way) {
    const revert = this.#kept[way].at(-1);
    return revert === undefined ? this.#say(`There is nothing to ${way}.`) : this.#save({ revert }, way);
  }

  #offerTerm(term) {
    if (!term || !this.#offer) return;
    const take = () => {
      this.#offers.replaceChildren();
      this.#offer(term);
    };
    this.#offers.replaceChildren(make("button", { type: "button", class: "plain", onclick: take }, `Add “${term}” to the expected words?`));
  }

  // --- saving ------------------------------------------------------------------------------------------------------

  async #save(body, way = null) {
    this.#kept.waiting.push({ body, way });
    await this.#flush();
  }

  /** Save what waits, in order. What the server refuses is not tried again. */
  async #flush() {
    this.#keep();
    if (this.#saving || !this.#kept.waiting.length) return;
    this.#saving = true;
    this.#say("Saving …");
    let said = "Saved.";
    try {
      while (this.#kept.waiting.length) {
        const [{ body, way }] = this.#kept.waiting;
        let made = null;
        try {
          made = await this.#send(body);
        } catch (error) {
          if (error.code !== "revision_changed") {
            this.#kept.waiting.shift();
            throw error;
          }
          const clash = await this.#clash(body);
          if (!clash) continue; // they changed something else: now with their revision
          this.#kept.waiting.shift();
          said = clash;
          continue;
        }
        this.#kept.waiting.shift();
        this.#revision = made.revision;
        if (!made.changes.length) continue;
        if (way) this.#kept[way].pop();
        else this.#kept.redo = [];
        this.#kept[way === "undo" ? "redo" : "undo"].push(made.revision);
      }
    } finally {
      this.#saving = false;
      this.#keep();
      if (said === "Saved.") await this.#load();
    }
    this.#say(said);
  }

  #send(body) {
    const told = () => this.#say("Not saved yet: the server does not answer. It is kept here and saved when the server is back.");
    const request = { method: "POST", body, ...this.#bearer };
    return persistently(() => ask(this.#path("corrections"), { ...request, headers: { "If-Match": `"${this.#revision}"` } }), { most: Infinity, told });
  }

  /** Load what somebody else has changed. Returns what to say if it is the same that *body* changes, otherwise null. */
  async #clash(body) {
    const came = [];
    for (let cursor = null, more = true; more;) {
      const page = await ask(this.#path("corrections", { limit: 100, ...(cursor && { cursor }) }), this.#bearer);
      came.push(...page.data.filter(({ revision }) => revision > this.#revision));
      [cursor, more] = [page.next_cursor, page.has_more];
    }
    await this.#load();
    const mine = body.changes ?? [];
    const other = came.findLast(({ changes }) => changes.some((theirs) => mine.some((one) => meet(one, theirs))));
    if (!other) return null;
    const theirs = other.changes.find((change) => mine.some((one) => meet(one, change)));
    const what = theirs.text === undefined ? "the speaker of the same words" : `the same to “${theirs.text}”`;
    const [one] = mine;
    const typed = mine.length === 1 && one.text !== undefined;
    if (typed) this.#retype(one, one.text);
    return `Somebody else (${other.by}) has changed ${what} meanwhile. ${typed ? "What you typed is in the field: Enter saves it, Escape leaves theirs." : "Nothing of yours was changed there."}`;
  }

  #keep() {
    const { waiting, undo, redo } = this.#kept;
    const any = waiting.length + undo.length + redo.length;
    store(sessionStorage, EDITS_AS + this.#job, any ? this.#kept : null);
  }
}

/** Join words of the same number: they can only be changed together. */
function unitsOf(words) {
  const units = [];
  for (const word of words) {
    const { index, last = index, start, end = start, spaced = true, speaker, name, channel, language } = word;
    const doubt = word.corrected || word.removed ? 1 : word.probability ?? 1;
    const unit = units.at(-1);
    if (unit?.first === index) {
      Object.assign(unit, { text: unit.text + (spaced ? " " : "") + word.word, end, doubt: Math.min(doubt, unit.doubt) });
      unit.corrected ||= Boolean(word.corrected);
    } else {
      const corrected = Boolean(word.corrected || word.removed);
      units.push({ first: index, last, text: word.word, start, end, spaced, speaker, name, language, doubt, corrected, voice: `${channel} ${speaker}` });
    }
  }
  return units;
}

/** Cut the units where the speaker changes, where a pause was, and where a long paragraph has the end of a sentence. */
function paragraphsOf(units) {
  const found = [];
  let last = null;
  for (const unit of units) {
    const ended = found.at(-1)?.length >= LONG && (/[.!?…。؟।]$/u.test(last.text) || found.at(-1).length >= 2 * LONG);
    if (!last || unit.voice !== last.voice || unit.start - last.end > PARAGRAPH_S || ended) found.push([]);
    found.at(-1).push(unit);
    last = unit;
  }
  return found;
}

const textOf = (units) => units.map(({ text, spaced }) => (spaced ? " " : "") + text).join("").trim().replaceAll(/\s+/gu, " ");

const pattern = (text) => new RegExp(text.replaceAll(/[\\^$.*+?()[\]{}|/]/gu, "\\$&"), "giu");

const meet = (one, other) =>
  one.first === undefined || other.first === undefined
    ? one.speaker !== undefined && one.first === other.first && one.speaker === other.speaker
    : one.first <= other.last && other.first <= one.last && (one.text === undefined) === (other.text === undefined);

function stored(place, name) {
  try {
    return JSON.parse(place.getItem(name));
  } catch {
    return null; // This browser stores nothing for this page.
  }
}

function store(place, name, value) {
  try {
    if (value === null) place.removeItem(name);
    else place.setItem(name, JSON.stringify(value));
  } catch {
    // As above: it is kept as long as the page is open.
  }
}
