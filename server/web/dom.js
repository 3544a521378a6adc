// Elements from JavaScript. Text goes in as text, so nothing that was spoken, typed or answered becomes markup.

export const find = (selector, inside = document) => inside.querySelector(selector);

/** An element with *attributes* (names with "on" are listeners; true, false and null switch) and *children*. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => ![null, undefined, false].includes(child)));
  return element;
}

export const code = (text) => make("code", {}, text);

/** Text that stands back. */
export const quiet = (...content) => make("span", { class: "quiet" }, content);

/** Show *text* for a moment; screen readers say it. */
export function announce(text) {
  const toast = find("#toast");
  toast.textContent = text;
  toast.classList.add("shown");
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => toast.classList.remove("shown"), 4000);
}

export async function copy(text, what) {
  await navigator.clipboard.writeText(text);
  announce(`${what} copied`);
}
