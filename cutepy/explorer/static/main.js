// The views, and their state in the address: every field of a view's form is a parameter of the same name.

import { ask, busy, failed } from "./api.js";
import { draw, escaped, forget, list } from "./grid.js";
import { ProfileView } from "./profile.js";
import { RunView } from "./run.js";
import { TracksView } from "./tracks.js";

const $ = (id) => document.getElementById(id);
const forms = Object.fromEntries(["layout", "steps", "compare", "atom", "umma"].map((view) => [view, $(`${view}-form`)]));
const defaults = Object.fromEntries(Object.entries(forms).map(([view, form]) => [view, values(form)]));
const views = [...document.querySelectorAll("[role=tab]")].map((tab) => tab.dataset.view);
let current = null;
let grids = [];

function values(form) {
  return Object.fromEntries(new FormData(form));
}

function fill(form, given) {
  for (const [name, value] of Object.entries(given)) {
    const field = form.elements.namedItem(name);
    if (field) field.value = value;
  }
}

// What the address says: one view, and the parameters of its form that it names; others are as they come.
function remember(parameters, how = "push") {
  const address = `?${new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""))}`;
  if (address === window.location.search) return;
  window.history[`${how}State`](null, "", address);
}

const run = new RunView(remember);
const profile = new ProfileView(remember);
const tracks = new TracksView(remember);

const shown = {
  layout(told, asked) {
    list($("layout-facts"), [["expression", told.expression], ...told.facts]);
    const follow = asked.show === "threads" || told.facts[0][1] === "WgmmaTraits" ? undefined
      : { expression: asked.expression, bits: asked.bits };
    draw($("layout-picture"), told.picture.grids, () => follow);
  },
  steps(told, asked) {
    grids = told.picture.grids;
    $("steps-result").textContent = `${told.picture.title} = ${told.result}`;
    $("step").max = String(grids.length - 1);
    $("step").value = String(asked.step === undefined ? grids.length - 1 : Math.min(Number(asked.step), grids.length - 1));
    slide();
  },
  compare(told) {
    $("compare-result").textContent = told.picture.title;
    draw($("compare-picture"), told.picture.grids);
  },
  atom(told, asked) {
    const facts = [["atom", told.atom], ["PTX", told.ptx], ["threads", told.threads],
      ["shared memory", told.fits ? `${told.smem_bytes} bytes` : `does not fit: ${told.overrun}`]];
    list($("atom-facts"), facts);
    list($("atom-partitions"), ["A", "B", "C"].map((name) => [`partition ${name}`, told.partitions[name]]));
    const smem = told[asked.picture];
    draw($("atom-picture"), told.picture.grids,
      () => smem && { expression: smem.layout, bits: smem.bits, address: smem.start_address });
    $("atom-operands").innerHTML = ["sA", "sB"].filter((name) => told[name]).map((name) => operand(name, told[name])).join("");
  },
  umma(told, asked) {
    const { word, fields } = told.instruction_descriptor;
    list($("umma-facts"), [["atom", told.atom], ["PTX", told.ptx], ["instruction descriptor", word],
      ["tensor memory", `${told.columns} columns, of an allocation of ${told.allocation}`],
      ["shared memory", told.fits ? `${told.smem_bytes} bytes` : `does not fit: ${told.overrun}`]]);
    list($("umma-partitions"), [...Object.entries(told.tensor_memory).map(([name, { layout, columns }]) =>
      [`${name} in tensor memory`, `${layout}, ${columns} columns`]),
      [told.load.ptx, `${told.load.layout}, ${told.load.registers} registers of ${told.load.columns} columns`]]);
    const smem = told[asked.picture];
    draw($("umma-picture"), told.picture.grids,
      () => smem && { expression: smem.layout, bits: smem.bits, address: smem.start_address });
    $("umma-operands").innerHTML = `<h2>Instruction descriptor ${escaped(word)}</h2>
      <div class="scroll"><table class="plain" id="umma-fields" aria-label="Fields of the instruction descriptor">
      ${row(["bits", "value", "meaning"], "th")}${fields.map(({ bits, value, meaning }) => row([bits, value, meaning])).join("")}
      </table></div>${["sA", "sB"].filter((name) => told[name]).map((name) => operand(name, told[name], "umma-")).join("")}`;
  },
};

function row(cells, tag = "td") {
  return `<tr>${cells.map((cell) => `<${tag}>${escaped(cell)}</${tag}>`).join("")}</tr>`;
}

function operand(name, told, of = "") {
  const fields = told.fields.map(({ field, bits, raw, meaning }) => row([field, bits, raw, meaning])).join("");
  const listed = told.descriptors.map((d) => row([d.coordinate, d.descriptor, `${d.start_address} (0x${d.start_address.toString(16)})`])).join("");
  const more = told.descriptor_count - told.descriptors.length;
  return `<h2 id="${of}${name}-heading">${name}</h2>
    <p class="result" id="${of}${name}-layout">${escaped(told.layout)}</p>
    <p>${told.major}-major, ${told.bits} bits, ${told.bytes} bytes from ${told.start_address}; atom <code>${escaped(told.atom)}</code></p>
    <h3>Fields of its first descriptor</h3>
    <div class="scroll"><table class="plain" id="${of}${name}-fields" aria-label="Fields of the first descriptor of ${name}">
    ${row(["field", "bits", "raw", "meaning"], "th")}${fields}</table></div>
    <details><summary>All ${told.descriptor_count} descriptors, and what the first means</summary>
    <p><code>${escaped(told.iterator)}</code></p>
    <div class="scroll"><table class="plain" id="${of}${name}-descriptors" aria-label="Descriptors of ${name}">
    ${row(["block MN, block K, stage", "descriptor", "start address"], "th")}${listed}</table></div>
    ${more ? `<p>and ${more} more</p>` : ""}<pre class="explanation">${escaped(told.explanation)}</pre></details>`;
}

function slide() {
  const at = Number($("step").value), all = $("all-steps").checked;
  $("step-number").textContent = grids.length ? `${at + 1} of ${grids.length}` : "";
  draw($("steps-picture"), all ? grids : grids.slice(at, at + 1));
}

function step(change) {
  const slider = $("step");
  slider.value = String(Number(slider.value) + change);
  slide();
  remember({ view: "steps", ...values(forms.steps), step: slider.value });
  delete drawn.steps;
}

let asked = null;
const drawn = {};

// One question has one answer: what is drawn already stays as it is, with the keyboard's focus in it.
async function load(view, parameters) {
  asked?.abort();
  const mine = (asked = new AbortController());
  const { step: at, ...rest } = parameters;
  const question = JSON.stringify([needed(view, rest), at]);
  if (drawn[view] === question) return;
  await busy(() => answer(view, rest, at, mine, question));
}

async function answer(view, rest, at, mine, question) {
  try {
    const told = await ask(`/api/${view}`, needed(view, rest), mine.signal);
    failed(view, null, forms[view]);
    forget();
    shown[view](told, { ...rest, step: at });
    drawn[view] = question;
  } catch (error) {
    if (error.name === "AbortError") return;
    clear(view);
    failed(view, error, forms[view]);
  }
}

// Of an operation only its own operands are asked with.
function needed(view, { view: _, ...given }) {
  if (view !== "steps") return given;
  const partition = given.operation.startsWith("partition_");
  const { operation, left } = given;
  if (partition) return { operation, left, atom: given.atom, atoms: given.atoms, thread: given.thread };
  if (["right_inverse", "left_inverse", "coalesce"].includes(operation)) return { operation, left };
  return { operation, left, right: given.right, ...(operation === "tile_to_shape" ? { order: given.order } : {}) };
}

function clear(view) {
  delete drawn[view];
  forget();
  for (const id of ["picture", "facts", "result", "partitions", "operands"].map((part) => `${view}-${part}`)) $(id)?.replaceChildren();
  if (view === "steps") grids = [];
}

function open(view) {
  current = view;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.view === view;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    $(`view-${tab.dataset.view}`).hidden = !chosen;
  }
  $("inspector").hidden = ["profile", "timeline"].includes(view); // it tells of cells of layouts
  document.title = `cutepy explorer: ${$(`tab-${view}`).textContent}`;
}

// Show what the address says.
function restore() {
  const given = Object.fromEntries(new URLSearchParams(window.location.search));
  const view = views.includes(given.view) ? given.view : "layout";
  open(view);
  forget();
  if (view === "run") return busy(() => run.restore(given));
  if (view === "profile") return busy(() => profile.restore(given));
  if (view === "timeline") return busy(() => tracks.restore(given));
  const named = Object.keys(given).some((name) => name in defaults[view]);
  const blank = Object.fromEntries(Object.keys(defaults[view]).map((name) => [name, ""]));
  fill(forms[view], { ...defaults[view], ...(named && view === "layout" ? { ...blank, show: "offsets" } : {}),
    ...(named && view === "compare" ? { bits: "" } : {}), ...given });
  enable();
  // What a field has no place for, such as bits=zz, is asked as it stands, and so refused in words.
  const odd = Object.fromEntries(Object.entries(given).filter(([name]) =>
    forms[view].elements.namedItem(name)?.tagName === "SELECT" && forms[view].elements.namedItem(name).value !== given[name]));
  return load(view, { ...values(forms[view]), ...odd, step: given.step });
}

// Fields that the chosen operation does not take are greyed out.
function enable() {
  const partition = $("operation").value.startsWith("partition_");
  const unary = ["right_inverse", "left_inverse", "coalesce"].includes($("operation").value);
  const hide = { right: partition || unary, order: $("operation").value !== "tile_to_shape",
    "step-atom": !partition, atoms: !partition, thread: !partition };
  for (const [id, hidden] of Object.entries(hide)) $(id).closest(".field").hidden = hidden;
}

for (const [view, form] of Object.entries(forms)) {
  let typing = 0;
  const submit = (how) => {
    window.clearTimeout(typing);
    remember({ view, ...values(form) }, how);
    load(view, values(form));
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit("push");
  });
  form.addEventListener("input", (event) => {
    window.clearTimeout(typing);
    if (event.target.tagName === "SELECT") return;
    typing = window.setTimeout(() => submit("replace"), 500);
  });
  form.addEventListener("change", (event) => {
    if (form === forms.steps) enable();
    if (event.target.tagName === "SELECT") submit("push");
  });
}

for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("click", (event) => {
    event.preventDefault();
    if (tab.dataset.view === current) return;
    remember({ view: tab.dataset.view });
    restore();
  });
  tab.addEventListener("keydown", (event) => {
    const change = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!change) return;
    const next = $(`tab-${views[(views.indexOf(tab.dataset.view) + change + views.length) % views.length]}`);
    next.click();
    next.focus();
  });
}

for (const link of document.querySelectorAll("a.example")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    remember(Object.fromEntries(new URLSearchParams(link.search)));
    restore();
  });
}

// On a narrow screen the picture comes before the lesser fields.
for (const more of document.querySelectorAll("details.more")) more.open = !window.matchMedia("(max-width: 700px)").matches;

$("previous-step").addEventListener("click", () => step(-1));
$("next-step").addEventListener("click", () => step(1));
$("step").addEventListener("input", slide);
$("step").addEventListener("change", () => step(0));
$("all-steps").addEventListener("change", slide);
window.addEventListener("popstate", restore);
restore();
