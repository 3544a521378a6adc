// The estimator view: shows what a prompt will cost on each model, as a bar from low to high, cheapest first.

import { admitted, ask } from "./api.js";
import { find, make, quiet } from "./dom.js";
import { counted, dollars, plain } from "./format.js";
import { Said, guarded } from "./problems.js";

const CHEAPER = {
  fewer_turns: ({ agent_turns: turns }) => `with ${counted(turns, "turn")}`,
};

const form = find("#estimate-form");
const prompt = find("#prompt");
const turns = find("#turns");
const rows = find("#estimate-rows");
const problem = find("#estimate-problem");

async function estimate() {
  if (!prompt.value.trim()) throw new Said("Paste a prompt first.");
  const body = { prompt: prompt.value, complexity: form.elements.complexity.value, agent_turns: Number(turns.value) };
  const models = find("#models").value.split(/[\s,]+/).filter(Boolean);
  if (models.length) body.models = models;
  const answer = await ask(admitted() ? "v1/estimate" : "v1/estimate/free", { method: "POST", body });
  show(answer);
}

function show({ models, inputs, warnings, assumptions, usage, price_source: source }) {
  const priced = models.filter((model) => model.cost_usd).sort((a, b) => a.rank - b.rank);
  const others = models.filter((model) => !model.cost_usd);
  const scale = logarithmic(priced);
  rows.replaceChildren(...priced.map((model) => row(model, scale)), ...others.map(unpriced));
  find("#estimate-axis").replaceChildren(...scale.ticks.map(tick));
  find("#estimate-result").hidden = false;
  filter();
  find("#estimate-summary").textContent = summary(priced, inputs);
  find("#estimate-left").textContent = usage.remaining === null ? "" : `${counted(usage.remaining, "estimate")} left today.`;
  find("#estimate-warnings").replaceChildren(...warnings.map(({ message }) => make("li", {}, message)));
  find("#estimate-assumptions").replaceChildren(
    ...assumptions.map(({ message }) => make("li", {}, message)),
    make("li", {}, `Prices: ${source.name} ${source.version}, newest of ${source.newest_price}.`),
  );
}

function summary(priced, { prompt_chars: chars, agent_turns: count, complexity }) {
  const [least, most] = [priced[0], priced.at(-1)].map((one) => `${dollars(one.cost_usd.expected)} (${one.model})`);
  const asked = `${counted(chars, "character")}, ${counted(count, "turn")}, ${complexity} complexity`;
  return `${asked}: from ${least} to ${most}.`;
}

const tick = ({ at, label }) => placed(make("span", {}, label), { at });

function row(model, scale) {
  const { low, expected, high } = model.cost_usd;
  const said = `low ${dollars(low)}, expected ${dollars(expected)}, high ${dollars(high)}`;
  const bar = make("div", { class: "bar", role: "img", "aria-label": `${model.model}: ${said}` },
    placed(make("span", { class: "range" }), { from: scale.at(low), to: scale.at(high) }),
    placed(make("span", { class: "point" }), { at: scale.at(expected) }),
  );
  const { input, output } = model.tokens;
  const tokens = `${input.expected.toLocaleString("en")} tokens in, ${output.expected.toLocaleString("en")} out`;
  return make("li", {},
    titled("model", model.model, `${model.provider} · ${tokens}`),
    bar,
    titled("cost", dollars(expected), `${dollars(low)} – ${dollars(high)}`),
    make("p", { class: "cheaper" }, cheaper(model)),
  );
}

const REASONS = { unknown_model: "no model has this name", unpriced: "no price is known", partial: "the prompt is too long for it" };

function unpriced({ requested_id: id, status, did_you_mean: near = [] }) {
  const guess = near.length ? `; did you mean ${near.join(" or ")}?` : "";
  return make("li", {}, titled("model", id, `${REASONS[status] ?? plain(status)}${guess}`));
}

/** Show only the rows that have the text of the filter. */
function filter() {
  const wanted = find("#estimate-filter input").value.trim().toLowerCase();
  for (const element of rows.children) element.hidden = !element.textContent.toLowerCase().includes(wanted);
}

const titled = (name, title, below) => make("div", { class: name }, make("strong", {}, title), quiet(below));

/** Show what would make this row cheaper, and its notes. */
function cheaper({ cheaper_by: savings, overflow_at_turn: overflow }) {
  const parts = savings.map((saving) => {
    const change = CHEAPER[saving.change]?.(saving) ?? `with ${plain(saving.change)}`;
    return `${dollars(saving.saves_usd)} less ${change}`;
  });
  if (overflow) parts.push(`its context is full at turn ${overflow}`);
  return parts.join(" · ");
}

/** Make a logarithmic scale, because costs differ by factors of hundreds. at() returns 0..1. */
function logarithmic(priced) {
  const values = priced.flatMap(({ cost_usd: cost }) => [Number(cost.low), Number(cost.high)]).filter(Boolean);
  const least = Math.floor(Math.log10(Math.min(...values)));
  const most = Math.max(least + 1, Math.ceil(Math.log10(Math.max(...values))));
  const at = (value) => Math.max(0, (Math.log10(Number(value)) - least) / (most - least));
  const ticks = Array.from({ length: most - least + 1 }, (_, step) => 10 ** (least + step));
  return { at, ticks: ticks.map((value) => ({ at: at(value), label: dollars(value) })) };
}

/** Set positions as style properties, because the page's security policy allows no style attributes. */
function placed(element, places) {
  for (const [name, value] of Object.entries(places)) element.style.setProperty(`--${name}`, value);
  return element;
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("submit", guarded(problem, estimate));
find("#estimate-filter").addEventListener("submit", (event) => event.preventDefault());
find("#estimate-filter input").addEventListener("input", filter);
document.addEventListener("estimate", ({ detail }) => {
  prompt.value = detail;
  location.hash = "#estimate";
  prompt.focus();
});
