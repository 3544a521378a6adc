// Finds words in a transcript: every match is marked, and the reader goes from one to the next.

import { find } from "./dom.js";

export class Finder {
  #text;
  #field;
  #count;
  #matches = []; // each a list of elements
  #at = -1;

  /** *form* has the field, the buttons and a status; *text* is the element with the transcript. */
  constructor(form, text) {
    this.#text = text;
    this.#field = find("input", form);
    this.#count = find("[role=status]", form);
    this.#field.addEventListener("input", () => this.#find());
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.#go(event.shiftKey ? -1 : 1);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    find(".next", form).addEventListener("click", () => this.#go(1));
    find(".previous", form).addEventListener("click", () => this.#go(-1));
  }

  /** Forget the words that were looked for. Call it when the transcript changes. */
  clear() {
    this.#field.value = "";
    this.#find();
  }

  #find() {
    for (const element of this.#text.querySelectorAll(".found")) element.classList.remove("found", "here");
    const wanted = this.#field.value.trim().replaceAll(/\s+/g, " ").toLocaleLowerCase();
    this.#matches = wanted ? matches(this.#text, wanted) : [];
    for (const element of this.#matches.flat()) element.classList.add("found");
    this.#at = -1;
    this.#count.textContent = wanted && (this.#matches.length ? "" : "Not found");
    if (this.#matches.length) this.#go(1);
  }

  #go(step) {
    const { length } = this.#matches;
    if (!length) return;
    this.#mark(false);
    this.#at = (this.#at + step + length) % length;
    this.#mark(true);
    this.#matches[this.#at][0].scrollIntoView({ block: "center" });
    this.#count.textContent = `${this.#at + 1} of ${length}`;
  }

  #mark(here) {
    for (const element of this.#matches[this.#at] ?? []) element.classList.toggle("here", here);
  }
}

/** Return the elements of every place in *text* that has *wanted*, also where it spans words. */
function matches(text, wanted) {
  let all = "";
  const places = []; // {from, element}
  for (const paragraph of text.querySelectorAll("p > span, p:not(:has(> span))")) {
    for (const node of paragraph.childNodes) {
      places.push({ from: all.length, element: node.nodeType === Node.ELEMENT_NODE ? node : paragraph });
      all += node.textContent.toLocaleLowerCase();
    }
    all += " ";
  }
  const found = [];
  for (let from = all.indexOf(wanted), first = 0; from >= 0; from = all.indexOf(wanted, from + wanted.length)) {
    while (first + 1 < places.length && places[first + 1].from <= from) first += 1;
    const elements = [];
    for (let at = first; at < places.length && places[at].from < from + wanted.length; at += 1) {
      if (places[at].element.matches(".word") || !elements.length) elements.push(places[at].element);
    }
    found.push(elements);
  }
  return found;
}
