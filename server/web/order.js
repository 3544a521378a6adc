// The form fields for a transcription that speech and files share: the language and the expected words.

import { find } from "./dom.js";

for (const place of document.querySelectorAll(".order")) place.append(find("#order-options").content.cloneNode(true));

/** Return the request members for the fields in *place*, without the empty ones. */
export function orderFrom(place) {
  const fields = [...place.querySelectorAll("input")].map(({ name, value }) => [name, value.trim()]);
  return Object.fromEntries(fields.filter(([, value]) => value));
}
