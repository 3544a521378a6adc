// A field in the place of words, to type over them: Enter saves, Escape leaves them as they were.

import { make } from "./dom.js";

/**
 * Show a field with *text* in place of *elements*. *done* is called once, when it is left, with the new text or null
 * and with the key that ended it. Returns the field.
 */
export function typeOver(elements, text, done) {
  const field = make("input", { class: "mend", dir: "auto", autocomplete: "off", "aria-label": `Correct “${text}”` });
  let over = false;
  const leave = (key) => {
    if (over) return;
    over = true;
    const said = field.value.trim().replaceAll(/\s+/gu, " ");
    field.remove();
    for (const element of elements) element.hidden = false;
    done(key === "Escape" || said === text ? null : said, key);
  };
  field.value = text;
  field.size = Math.max(4, text.length + 2);
  field.addEventListener("input", () => { field.size = Math.max(4, field.value.length + 2); });
  field.addEventListener("blur", () => leave("blur"));
  field.addEventListener("keydown", (event) => {
    event.stopPropagation(); // the keys of the text around it are not meant
    if (event.isComposing || !["Enter", "Escape", "Tab"].includes(event.key)) return;
    event.preventDefault();
    leave(event.shiftKey && event.key === "Tab" ? "Shift+Tab" : event.key);
  });
  for (const element of elements) element.hidden = true;
  elements[0].before(field);
  field.focus();
  field.select();
  return field;
}

/** Return what a person typed that may be worth expecting: the first long word with a capital that was not there. */
export function termIn(text, before) {
  const known = new Set(before.match(/[\p{L}\p{M}'’-]+/gu));
  return text.match(/[\p{L}\p{M}'’-]+/gu)?.find((word) => /^\p{Lu}[\p{L}\p{M}'’-]{2,}$/u.test(word) && !known.has(word)) ?? null;
}

/**
 * Let the operator correct final words of a live text in *box* while it grows: a click on one, or Enter, opens a field;
 * arrows go from word to word. *at* returns {first, last, text} of a word's element, or null; *save* takes the change.
 */
export function correctable(box, { at, save }) {
  const finals = () => [...box.querySelectorAll(".final")].filter((one) => one.textContent && at(one));
  const edit = (element) => {
    const place = at(element);
    if (!place) return;
    typeOver([element], place.text, (text, key) => {
      if (key !== "blur") box.focus();
      if (text !== null) save({ first: place.first, last: place.last, text }, place.text);
    });
  };
  const go = (from, step) => {
    const all = finals();
    const to = from === box ? all.at(-1) : all[all.indexOf(from) + step];
    if (!to) return;
    to.tabIndex = -1;
    to.setAttribute("role", "button");
    to.focus();
  };
  box.addEventListener("click", ({ target }) => target.matches(".final") && edit(target));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.target !== box && !event.target.matches(".final")) return;
    if (step) go(event.target, step);
    else if (event.key === "Enter" && event.target !== box) edit(event.target);
    else return;
    event.preventDefault();
  });
}
