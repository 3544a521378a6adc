// The captions as an overlay for streaming software: the last lines alone on a transparent page, as the address asks.

import { find } from "./dom.js";
import { Said } from "./problems.js";

const PRUNE_AT = 600; // words; a page that is open for days must not grow
const KEPT = 300;

const whole = (least, most) => ({
  read: (text) => (/^\d{1,4}$/.test(text) && Number(text) >= least && Number(text) <= most ? Number(text) : null),
  must: `be a whole number from ${least} to ${most}`,
});
const oneOf = (...names) => ({
  read: (text) => (names.includes(text) ? text : null),
  must: `be ${names.join(" or ")}`,
});
const colour = {
  read: (text) => (/^([\da-f]{3,4}|[\da-f]{6}|[\da-f]{8})$/i.test(text) ? `#${text}` : null),
  must: "be 3, 4, 6 or 8 hexadecimal digits without #",
};

/** What the query of the address may set: its value if it is left out, and which values it takes. */
const PARAMETERS = {
  overlay: ["1", oneOf("1")],
  lines: ["2", whole(1, 10)],
  size: ["48", whole(8, 400)],
  stroke: ["2", whole(0, 20)],
  color: ["fff", colour],
  background: ["0000", colour],
  align: ["center", oneOf("left", "center", "right")],
  hide: ["8", whole(0, 600)],
  lang: ["original", { read: (text) => (/^[\w-]{2,20}$/.test(text) ? text : null), must: "be original or a language" }],
};

/** Return the parameters of the overlay that *query* asks for, null without one. Throws Said for a wrong value. */
export function overlayOf(query) {
  if (!query.has("overlay")) return null;
  for (const name of query.keys()) {
    if (!(name in PARAMETERS)) throw new Said(`The overlay has no parameter ${name}.`);
  }
  const entries = Object.entries(PARAMETERS).map(([name, [usual, { read, must }]]) => {
    const value = read(query.get(name) ?? usual);
    if (value === null) throw new Said(`${name} must ${must}.`);
    return [name, value];
  });
  return Object.fromEntries(entries);
}

/** The page as an overlay. Tell it of every event that has words. */
export class Overlay {
  #box;
  #hide;
  #timer;

  constructor(box, { lines, size, stroke, color, background, align, hide }) {
    this.#box = box;
    this.#hide = hide;
    const root = document.documentElement;
    root.classList.add("overlay");
    const look = { lines, size: `${size}px`, stroke: `${stroke}px`, ink: color, paper: background, align };
    for (const [name, value] of Object.entries(look)) root.style.setProperty(`--overlay-${name}`, value);
  }

  /** Show the words, until nothing was said for as long as the address asks. */
  heard() {
    const { classList } = document.documentElement;
    classList.remove("silent");
    clearTimeout(this.#timer);
    if (this.#hide) this.#timer = setTimeout(() => classList.add("silent"), this.#hide * 1000);
    this.#prune();
  }

  /** Remove words that left the screen long ago. */
  #prune() {
    const words = this.#box.querySelectorAll(".final");
    if (words.length < PRUNE_AT) return;
    for (const word of [...words].slice(0, -KEPT)) word.remove();
    for (const paragraph of [...this.#box.children].slice(0, -1)) if (!find(".final, .partial", paragraph)) paragraph.remove();
  }
}
