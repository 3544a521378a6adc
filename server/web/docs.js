// The API reference: /openapi.json as a page, made here and without any other host.

import { ask, root } from "./api.js";
import { find, make } from "./dom.js";
import { tell } from "./problems.js";
import { members, schemaType } from "./schemas.js";

const METHODS = ["get", "post", "put", "patch", "delete"];

async function show() {
  const api = await ask(new URL("openapi.json", root), { bearer: null });
  find("#title").textContent = `${api.info.title} API ${api.info.version}`;
  find("#summary").textContent = `${api.info.summary}.`;
  find("#servers").append(...api.servers.flatMap(({ url, description }) => [make("dt", {}, description), make("dd", {}, make("code", {}, url))]));
  const operations = Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })));
  for (const { name, description } of api.tags) {
    const own = operations.filter(({ tags }) => tags.includes(name));
    find("#operations").append(make("section", { class: "tag" }, make("h2", { id: `tag-${name}` }, name), make("p", { class: "quiet" }, description), own.map(operation)));
    find("#contents").append(make("h3", {}, name), make("ul", {}, own.map(entry)));
  }
  find("#webhooks").append(make("h2", {}, "Webhooks"), ...Object.entries(api.webhooks).map(webhook));
  find("#schemas").append(make("h2", {}, "Schemas"), ...Object.entries(api.components.schemas).map(schema));
  search();
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

const badge = (method) => make("span", { class: `method ${method}` }, method.toUpperCase());

const entry = ({ operationId: id, method, path, summary }) =>
  make("li", { "data-for": id }, make("a", { href: `#${id}`, title: summary }, badge(method), " ", path));

// --- one operation -----------------------------------------------------------------------------------------------------

function operation({ operationId: id, method, path, summary, description, security, parameters = [], requestBody, responses }) {
  const answers = Object.entries(responses);
  return make("article", { id },
    make("h3", {}, badge(method), " ", make("code", {}, path)),
    make("p", { class: "what" }, make("strong", {}, `${summary}.`), " ", description ?? ""),
    make("p", { class: "quiet" }, access(security)),
    parameters.length > 0 && block("Parameters", table(["Name", "In", "Type", "Meaning"], parameters.map(parameter))),
    requestBody && block("Body", Object.entries(requestBody.content).map(([type, content]) => body(type, content, requestBody.required))),
    block("Answers", make("dl", { class: "answers" }, answers.filter(([status]) => status < "4").flatMap(answer))),
    block("Errors", make("dl", { class: "answers" }, answers.filter(([status]) => status >= "4").flatMap(refused))),
  );
}

/** Which of the ways in are offered: {} among them is one without a key. */
function access(security) {
  const open = security.some((one) => Object.keys(one).length === 0);
  const keyed = security.some((one) => "key" in one);
  if (!keyed) return "Needs no key.";
  return open ? "Takes a key, or a token or signed link that was made with one." : "Needs a key: Authorization: Bearer sw_…";
}

const block = (title, ...content) => make("div", { class: "block" }, make("h4", {}, title), content);

const table = (heads, rows) =>
  make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": heads.join(", ") },
    make("table", {}, make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, rows)));

const parameter = ({ name, in: place, required, schema, description }) =>
  make("tr", {}, make("td", {}, make("code", {}, name), required && make("span", { class: "required" }, " required")),
    make("td", {}, place), make("td", {}, schemaType(schema)), make("td", {}, coded(description)));

function body(type, { schema, example }, required) {
  return [
    make("p", {}, make("code", {}, type), required ? "" : " (optional)", ": ", schemaType(schema)),
    example !== undefined && make("pre", { tabindex: 0 }, make("code", {}, JSON.stringify(example, null, 2))),
  ];
}

function answer([status, { description, content = {}, headers = {} }]) {
  const kinds = Object.entries(content).map(([type, { schema }]) => [" ", make("code", {}, type), schema && [" ", schemaType(schema)]]);
  const names = Object.keys(headers);
  return [
    make("dt", {}, status),
    make("dd", {}, `${description}.`, kinds, names.length > 0 && make("span", { class: "quiet" }, ` Headers: ${names.join(", ")}.`)),
  ];
}

const refused = ([status, { description }]) =>
  [make("dt", {}, status), make("dd", {}, description.split(", ").map((code, index) => [index ? ", " : "", make("code", {}, code)]))];

/** Text in which `this` is code. */
const coded = (text) => text.split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));

// --- webhooks and schemas ----------------------------------------------------------------------------------------------

const webhook = ([event, { post }]) =>
  make("article", { id: `webhook-${event}` },
    make("h3", {}, badge("post"), " ", make("code", {}, event)),
    make("p", {}, `${post.summary}. `, "Body: ", schemaType(post.requestBody.content["application/json"].schema)));

const schema = ([name, said]) =>
  make("article", { id: `schema-${name}` }, make("h3", {}, make("code", {}, name)),
    said.description && make("p", {}, coded(said.description)),
    table(["Member", "Type", "Meaning"], members(said).map(({ path, required, type, description }) =>
      make("tr", {}, make("td", {}, make("code", {}, path), required && make("span", { class: "required" }, " required")),
        make("td", {}, type), make("td", {}, coded(description ?? ""))))));

// --- search ------------------------------------------------------------------------------------------------------------

/** Show what has every word of the search somewhere in it. */
function search() {
  const wanted = find("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const article of document.querySelectorAll("article")) {
    const text = article.textContent.toLowerCase();
    article.hidden = !wanted.every((word) => text.includes(word));
    count += article.hidden ? 0 : 1;
    const link = find(`[data-for="${article.id}"]`);
    if (link) link.hidden = article.hidden;
  }
  for (const part of document.querySelectorAll("main section")) part.hidden = !part.querySelector("article:not([hidden])");
  find("#found").textContent = wanted.length ? `${count} found` : "";
}

find("#search").addEventListener("input", search);
show().catch((error) => tell(find("#problem"), error));
