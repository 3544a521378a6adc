// The API reference: turns /openapi.json into a page in the browser, without any other host.

import { ask, root } from "./api.js";
import { code, find, make, quiet } from "./dom.js";
import { tell } from "./problems.js";
import { members, schemaType } from "./schemas.js";

const METHODS = ["get", "post", "put", "patch", "delete"];

async function show() {
  const api = await ask(new URL("openapi.json", root), { bearer: null });
  find("#title").textContent = `${api.info.title} API ${api.info.version}`;
  find("#summary").textContent = `${api.info.summary}.`;
  find("#servers").append(...api.servers.flatMap(server));
  const operations = Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })));
  for (const { name, description } of api.tags) {
    const own = operations.filter(({ tags }) => tags.includes(name));
    find("#operations").append(section(name, description, own.map(operation)));
    find("#contents").append(make("h3", {}, name), make("ul", {}, own.map(entry)));
  }
  find("#operations").append(
    section("webhooks of a job", "Sent to the address that the job named", Object.entries(api.webhooks).map(webhook)),
    section("schemas", "What bodies hold", Object.entries(api.components.schemas).map(schema)),
  );
  search();
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

const server = ({ url, description }) => [make("dt", {}, description), make("dd", {}, code(url))];

const section = (name, description, articles) =>
  make("section", {}, make("h2", {}, name), make("p", { class: "quiet" }, description), articles);

const badge = (method) => make("span", { class: `method ${method}` }, method.toUpperCase());

const entry = ({ operationId: id, method, path, summary }) =>
  make("li", { "data-for": id }, make("a", { href: `#${id}`, title: summary }, badge(method), " ", path));

// --- one operation -------------------------------------------------------------------------------------------------

function operation(said) {
  const { operationId: id, method, path, summary, description, security, parameters = [], requestBody: body } = said;
  const answers = Object.entries(said.responses);
  return make("article", { id },
    make("h3", {}, badge(method), " ", code(path)),
    make("p", {}, make("strong", {}, `${summary}.`), " ", coded(description)),
    make("p", { class: "quiet" }, access(security)),
    parameters.length > 0 && block("Parameters", table(`${method} ${path}`, ["Name", "In", "Type", "Meaning"], parameters.map(parameter))),
    body && block("Body", Object.entries(body.content).map(([type, content]) => kind(type, content, body.required))),
    block("Answers", make("dl", { class: "answers" }, answers.filter(([status]) => status < "4").map(answer))),
    block("Errors", make("dl", { class: "answers" }, answers.filter(([status]) => status >= "4").map(refused))),
  );
}

/** Describe how an operation is authorised; {} in *security* means that it needs no key. */
function access(security) {
  const open = security.some((one) => Object.keys(one).length === 0);
  const keyed = security.some((one) => "key" in one);
  if (!keyed) return "Needs no key.";
  if (open) return "Takes a key, or a token or signed link that was made with one.";
  return "Needs a key: Authorization: Bearer sw_…";
}

const block = (title, ...content) => make("div", { class: "block" }, make("h4", {}, title), content);

function table(title, heads, rows) {
  const head = make("thead", {}, make("tr", {}, heads.map((one) => make("th", { scope: "col" }, one))));
  const scrolls = { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}: ${heads.join(", ")}` };
  return make("div", scrolls, make("table", {}, head, make("tbody", {}, rows)));
}

const row = (...cells) => make("tr", {}, cells.map((cell) => make("td", {}, cell)));

const named = (name, required) => [code(name), required && make("span", { class: "required" }, " required")];

const parameter = ({ name, in: place, required, schema: type, description }) =>
  row(named(name, required), place, schemaType(type), coded(description));

const kind = (type, { schema: content, example }, required) => [
  make("p", {}, code(type), required ? "" : " (optional)", ": ", schemaType(content)),
  example !== undefined && make("pre", { tabindex: 0 }, code(JSON.stringify(example, null, 2))),
];

function answer([status, { description, content = {}, headers = {} }]) {
  const kinds = Object.entries(content).map(([type, { schema: body }]) =>
    [" ", code(type), body && [" ", schemaType(body)]]);
  const names = Object.keys(headers).join(", ");
  return [make("dt", {}, status), make("dd", {}, `${description}.`, kinds, names && quiet(` Headers: ${names}.`))];
}

/** Show the description of an error status, which lists its codes. */
const refused = ([status, { description }]) =>
  [make("dt", {}, status), make("dd", {}, description.split(", ").map((one, index) => [index ? ", " : "", code(one)]))];

/** Turn text into elements, with `this` as code. */
const coded = (text = "") => text.split("`").map((part, index) => (index % 2 ? code(part) : part));

// --- webhooks and schemas --------------------------------------------------------------------------------------------

const webhook = ([event, { post }]) =>
  make("article", { id: `webhook-${event}` },
    make("h3", {}, badge("post"), " ", code(event)),
    make("p", {}, `${post.summary}. `, "Body: ", schemaType(post.requestBody.content["application/json"].schema)));

const schema = ([name, said]) =>
  make("article", { id: `schema-${name}` },
    make("h3", {}, code(name)),
    said.description && make("p", {}, coded(said.description)),
    table(name, ["Member", "Type", "Meaning"], members(said).map(member)));

const member = ({ path, required, type, description }) => row(named(path, required), type, coded(description));

// --- search ----------------------------------------------------------------------------------------------------------

/** Show only the operations that contain every word of the search. */
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
  for (const part of document.querySelectorAll("main section")) {
    part.hidden = !part.querySelector("article:not([hidden])");
  }
  find("#found").textContent = wanted.length ? `${count} found` : "";
}

find("#search").addEventListener("input", search);
show().catch((error) => tell(find("#problem"), error));
