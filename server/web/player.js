// Shows a transcript with its audio: the current word is marked, and a click on a word plays from there.

import { find, make } from "./dom.js";
import { clock } from "./format.js";
import { Voices, named } from "./voices.js";
import { markLanguages, written } from "./words.js";

export class Player {
  #frame;
  #video;
  #caption;
  #text;
  #words = []; // the elements, as they are read
  #timed = []; // {start, end, element}, as they are spoken: people may speak at the same time
  #lit = null;
  #captions = null;
  #urls = [];
  #next = 0; // animation frame

  constructor(box) {
    this.#frame = find(".player", box);
    this.#video = find("video", box);
    this.#caption = find(".caption", box);
    this.#text = find(".transcript", box);
    this.#text.addEventListener("click", (event) => this.#clicked(event.target));
    this.#text.addEventListener("keydown", (event) => this.#pressed(event));
    this.#video.addEventListener("loadedmetadata", () => {
      const sound = this.#video.videoWidth === 0;
      this.#frame.classList.toggle("sound", sound);
      for (const track of this.#video.textTracks) track.mode = sound ? "hidden" : "showing";
    });
    for (const type of ["play", "seeked", "timeupdate"]) this.#video.addEventListener(type, () => this.#follow());
  }

  /** *transcript* is the JSON output, *captions* the VTT file. There is no audio before play(). */
  show({ text, words = [], segments = [], language = null }, captions) {
    this.clear();
    this.#captions = captions;
    this.#text.replaceChildren(...paragraphs(text, words, segments, language));
    markLanguages(this.#text.children);
    this.attend(this.#text);
    if (this.#words.length) this.#words[0].tabIndex = 0;
  }

  /** Follow the words in *box* from now on. */
  attend(box) {
    this.#words = [...box.querySelectorAll(".word")];
    this.#lit?.element.classList.remove("lit");
    this.#lit = null;
    this.#timed = this.#words.map((element) => ({
      start: Number(element.dataset.start), end: Number(element.dataset.end), element,
    }));
    this.#timed.sort((one, other) => one.start - other.start);
  }

  /** Go to *start*, in seconds, and play on if it plays. */
  seek(start) {
    if (!this.#frame.hidden) this.#video.currentTime = start;
  }

  /** Go to the word at *start* and put the keyboard focus there. */
  goTo(start) {
    this.seek(start);
    const word = this.#wordAt(start)?.element;
    if (!word) return;
    word.focus();
    word.scrollIntoView({ block: "center" });
  }

  /** Play, or pause. Returns whether there is audio. */
  toggle() {
    if (this.#frame.hidden) return false;
    if (this.#video.paused) this.#video.play();
    else this.#video.pause();
    return true;
  }

  speed(rate) {
    this.#video.playbackRate = this.#video.defaultPlaybackRate = rate;
  }

  /** Get ready to play *source*: a File, which is not sent anywhere, or the address of the recording. */
  load(source) {
    this.#release();
    this.#video.src = source instanceof File ? this.#url(source) : source;
    if (this.#captions?.size) this.#addCaptions();
    this.#frame.hidden = false;
    this.#text.classList.add("playable");
  }

  /** Show captions in a line of this page if there is no picture: browsers draw them over pictures only. */
  #addCaptions() {
    const track = make("track", { kind: "captions", label: "Captions", src: this.#url(this.#captions), default: true });
    this.#video.append(track);
    track.track.addEventListener("cuechange", () => {
      this.#caption.textContent = [...track.track.activeCues].map((cue) => cue.getCueAsHTML().textContent).join(" ");
    });
  }

  /** Play, and put the keyboard focus there. */
  play() {
    this.#video.focus();
    return this.#video.play();
  }

  /** Call *failed* if the browser cannot play what load() was given. */
  onfailure(failed) {
    this.#video.addEventListener("error", () => this.#video.hasAttribute("src") && failed());
  }

  clear() {
    this.#release();
    this.#captions = null;
    this.#text.replaceChildren();
    this.#words = this.#timed = [];
    this.#lit = null;
  }

  #release() {
    cancelAnimationFrame(this.#next);
    this.#video.pause();
    this.#video.removeAttribute("src");
    this.#video.replaceChildren();
    this.#video.load();
    this.#frame.hidden = true;
    this.#caption.textContent = "";
    this.#text.classList.remove("playable");
    for (const url of this.#urls.splice(0)) URL.revokeObjectURL(url);
  }

  #url(blob) {
    const url = URL.createObjectURL(blob);
    this.#urls.push(url);
    return url;
  }

  /** Mark the current word while the audio plays. */
  #follow() {
    cancelAnimationFrame(this.#next);
    const word = this.#wordAt(this.#video.currentTime);
    if (word !== this.#lit) {
      this.#lit?.element.classList.remove("lit");
      word?.element.classList.add("lit");
      if (word && !this.#video.paused) word.element.scrollIntoView({ block: "nearest" });
      this.#lit = word;
    }
    if (!this.#video.paused) this.#next = requestAnimationFrame(() => this.#follow());
  }

  /** Return the last word that has begun, until half a second after its end. */
  #wordAt(time) {
    let [low, high] = [0, this.#timed.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#timed[middle].start <= time + 0.02) low = middle + 1;
      else high = middle;
    }
    const word = this.#timed[low - 1] ?? null;
    return word && time < word.end + 0.5 ? word : null;
  }

  #clicked(element) {
    const start = element.closest("[data-start]")?.dataset.start;
    if (start !== undefined && !this.#frame.hidden) this.#jump(Number(start));
  }

  #jump(start) {
    this.#video.currentTime = start;
    this.#video.play();
  }

  /** The arrow keys go from word to word, Enter plays from there. */
  #pressed(event) {
    const at = this.#words.indexOf(event.target);
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (at >= 0 && step !== undefined) {
      const to = Math.max(0, Math.min(this.#words.length - 1, at + step));
      this.#words[at].tabIndex = -1;
      this.#words[to].tabIndex = 0;
      this.#words[to].focus();
    } else if (at >= 0 && event.key === "Enter") this.#clicked(event.target);
    else return;
    event.preventDefault();
  }
}

/** Make a paragraph for each segment, with its start time, its speaker where that is known, and its words. */
function paragraphs(text, words, segments, language) {
  if (!segments.length) return [make("p", { dir: "auto", lang: text ? language : null }, text || "No speech was found.")];
  const spoken = new Map(); // by voice, because people may speak at the same time
  for (const word of words) {
    if (!spoken.has(voiceOf(word))) spoken.set(voiceOf(word), []);
    spoken.get(voiceOf(word)).push(word);
  }
  const ends = endsOf(segments);
  const reached = new Map();
  const voices = new Voices();
  return segments.map((segment, index) => {
    const voice = voiceOf(segment);
    const own = spoken.get(voice) ?? [];
    const begun = reached.get(voice) ?? 0;
    let at = begun;
    while (at < own.length && own[at].start < ends[index]) at += 1;
    reached.set(voice, at);
    return paragraph({ language, ...segment }, voices, at > begun ? spelled(own.slice(begun, at), segment.text) : [segment.text]);
  });
}

/** Return what the words of a segment share: a person may be heard on two channels. */
const voiceOf = ({ channel, speaker }) => `${channel} ${speaker}`;

/** Return for each segment when the next one of its voice starts. */
function endsOf(segments) {
  const next = new Map();
  return [...segments].reverse().map((segment) => {
    const end = next.get(voiceOf(segment)) ?? Infinity;
    next.set(voiceOf(segment), segment.start);
    return end;
  }).reverse();
}

/** Return what screen readers say of the button that plays what *speaker*, if that is known, says at *start*. */
export const playFrom = (start, speaker) => `Play from ${clock(start)}${speaker ? `, ${speaker}` : ""}`;

function paragraph({ start, speaker, language }, voices, content) {
  const time = { type: "button", class: "time", "data-start": start, "aria-label": playFrom(start, speaker) };
  const name = speaker && named(speaker);
  return make("p", voices.mark(speaker), make("button", time, clock(start), name && " ", name), make("span", written(language), content));
}

/** Make elements of *words*, with the spaces that *text* has between them: not every script has spaces. */
function spelled(words, text) {
  let from = 0;
  return words.flatMap(({ word, start, end }) => {
    const at = text.indexOf(word, from);
    const between = at < 0 ? " " : text.slice(from, at);
    from = at < 0 ? from : at + word.length;
    return [between, make("span", { class: "word", "data-start": start, "data-end": end, tabindex: -1 }, word)];
  });
}
