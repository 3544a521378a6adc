// The channels of the account: lasting addresses of live captions, which are made, copied and deleted here.

import { admitted, ask, base } from "./api.js";
import { announce, copy, find, make } from "./dom.js";
import { Said, guarded } from "./problems.js";

const problem = find("#account-problem");
const list = find("#channels");

/** Return *link*, a page of captions, on the origin of this page: the server may know itself by another name. */
export const ownPage = (link) => new URL(link.slice(link.lastIndexOf("/live/") + 1), base()).href;

for (const place of document.querySelectorAll(".overlay-look")) {
  place.append(find("#overlay-options").content.cloneNode(true));
}

/** Return *link*, a page of captions, as an overlay for streaming software that looks as the fields in *place* say. */
export function overlayLink(link, place) {
  const url = new URL(link);
  url.searchParams.set("overlay", "1");
  for (const control of place.querySelectorAll("[name]")) {
    if (!control.reportValidity()) throw new Said(`${control.labels[0].firstChild.textContent.trim()}: ${control.validationMessage}`);
    const usual = control.defaultValue ?? control.options[0].value;
    if (control.value !== usual) url.searchParams.set(control.name, control.value.replace("#", ""));
  }
  return url.href;
}

/** Return the account's channels. */
export const channels = async () => (admitted() ? (await ask("v1/channels")).data : []);

function row({ channel_id, name, page_url }) {
  const link = ownPage(page_url);
  const button = (said, onclick) =>
    make("button", { type: "button", class: "plain", "aria-label": `${said}: ${name}`, onclick }, said);
  const remove = guarded(problem, async () => {
    if (!confirm(`Delete the channel “${name}”? Its links will show nothing.`)) return;
    await ask(`v1/channels/${channel_id}`, { method: "DELETE" });
    announce("Deleted");
    await showChannels();
  });
  return make("li", {},
    make("a", { href: link, target: "_blank", rel: "noopener" }, name),
    make("span", { class: "row" },
      button("Copy link", guarded(problem, () => copy(link, "Link"))),
      button("Copy overlay link", guarded(problem, () => copy(overlayLink(link, find("#account-view .overlay-look")), "Overlay link"))),
      button("Delete", remove),
    ),
  );
}

/** Load the channels and show them. */
export async function showChannels() {
  list.replaceChildren(...(await channels()).map(row));
}

find("#channel-form").addEventListener("submit", (event) => event.preventDefault());
find("#channel-form").addEventListener("submit", guarded(problem, async () => {
  const field = find("#channel-name");
  await ask("v1/channels", { method: "POST", body: { name: field.value } });
  field.value = "";
  await showChannels();
}));
