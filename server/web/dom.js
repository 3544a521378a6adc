// Makes elements. Text is always added as text, so that nothing that was spoken, typed or received becomes markup.

export const find = (selector, inside = document) => inside.querySelector(selector);

/** Make an element. *attributes* whose names begin with "on" are listeners; true, false and null set or omit one. */
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

/** Make a text in a muted colour. */
export const quiet = (...content) => make("span", { class: "quiet" }, content);

/** Show *text* for a few seconds. Screen readers read it aloud. */
export function announce(text) {
  const toast = find("#toast");
  toast.textContent = text;
  toast.classList.add("shown");
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => toast.classList.remove("shown"), 4000);
}

export async function copy(text, what) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else copySelected(text); // a page that came by plain http from another machine
  announce(`${what} copied`);
}

function copySelected(text) {
  const area = make("textarea", { class: "unseen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
