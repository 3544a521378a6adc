// What one may say about the audio before it is heard: its language and the words to expect.

import { find } from "./dom.js";

for (const place of document.querySelectorAll(".order")) place.append(find("#order-options").content.cloneNode(true));

/** The members of a request that the fields in *place* stand for; what is left empty is left out. */
export function orderFrom(place) {
  const fields = [...place.querySelectorAll("input")].map(({ name, value }) => [name, value.trim()]);
  return Object.fromEntries(fields.filter(([, value]) => value));
}
