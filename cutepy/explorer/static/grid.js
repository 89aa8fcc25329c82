// Drawing grids: a table of cells to point at, or to move in with the arrow keys.

import { ask } from "./api.js";

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

export const escaped = (text) => String(text).replace(/[&<>"']/g, (character) => ENTITIES[character]);

const level = (axis, position) => Math.min(2, position ? axis.tiles.filter((tile) => position % tile === 0).length : 0);

// Where the pointer was last: cells that scroll under it while it rests are not pointed at.
let resting = "";

const place = (event) => `${event.screenX},${event.screenY}`;
const moved = (event) => place(event) !== resting;
document.addEventListener("mousemove", (event) => { resting = place(event); });

export class GridView {
  // follow: what to ask /api/follow with, beside the index; absent where a coordinate cannot be followed.
  constructor(grid, follow) {
    this.grid = grid;
    this.follow = follow;
    this.lit = [];
    this.figure = document.createElement("figure");
    this.figure.innerHTML = this.html();
    this.table = this.figure.querySelector("table");
    this.table.addEventListener("mouseover", (event) => moved(event) && this.show(event.target.closest("td")));
    this.table.addEventListener("focusin", (event) => this.show(event.target.closest("td")));
    this.table.addEventListener("click", (event) => event.target.closest("td")?.focus());
    this.table.addEventListener("keydown", (event) => this.move(event));
    this.table.querySelector("td")?.setAttribute("tabindex", "0");
  }

  // Cells are scrolled clear of the labels that stay at the edges, however large these are.
  clear() {
    const corner = this.table.tHead.rows[0].cells[0].getBoundingClientRect();
    if (!corner.width) return;
    this.table.style.setProperty("--head", `${corner.height + 2}px`);
    this.table.style.setProperty("--side", `${corner.width + 2}px`);
  }

  text(k) {
    const { text, thread, value } = this.grid.cells;
    if (text === "owner") return `T${thread[k]}\nV${value[k]}`;
    return typeof text === "string" ? this.grid.cells[text][k] : text[k];
  }

  known(name, k) {
    const { cells } = this.grid;
    return cells[name] ? cells[name][k] : cells.groups?.[name]?.[cells.group[k]];
  }

  html() {
    const { rows, columns, cells } = this.grid;
    const parts = [];
    if (this.grid.title) parts.push(`<p class="title">${escaped(this.grid.title)}</p>`);
    parts.push(this.legend(), '<div class="scroll"><table class="cells" role="grid" ');
    parts.push(`aria-label="${escaped(this.grid.title || "picture")}"><thead><tr><th>${escaped(this.grid.corner)}</th>`);
    const edges = columns.labels.map((_, j) => (level(columns, j) ? `l${level(columns, j)} ` : ""));
    for (const label of columns.labels) parts.push(`<th scope="col">${escaped(label)}</th>`);
    parts.push("</tr></thead><tbody>");
    for (let i = 0, k = 0; i < rows.size; i++) {
      const top = level(rows, i);
      parts.push(top ? `<tr class="t${top}">` : "<tr>", `<th scope="row">${escaped(rows.labels[i])}</th>`);
      for (let j = 0; j < columns.size; j++, k++) {
        const colour = this.known("colour", k);
        const marked = this.known("marks", k) ? "m " : "";
        const filled = colour === null || colour === undefined ? "" : `c${((colour % 8) + 8) % 8}`;
        parts.push(
          `<td class="${edges[j]}${marked}${filled}" tabindex="-1" data-row="${i}" data-column="${j}">`,
          escaped(this.text(k)), "</td>");
      }
      parts.push("</tr>");
    }
    parts.push("</tbody></table></div>");
    return parts.join("");
  }

  // Remarks, and the meaning of the colours, each with its number.
  legend() {
    const remarks = this.grid.caption.map(escaped);
    if (this.grid.colours) {
      const keys = [0, 1, 2, 3, 4, 5, 6, 7].map((key) => `<span class="key c${key}">${key}</span>`).join("");
      remarks.push(`colour: ${escaped(this.grid.colours)} ${keys}`);
    }
    return `<figcaption>${remarks.join("<br>")}</figcaption>`;
  }

  coordinate(i, j) {
    const { rows, columns, coordinate } = this.grid;
    if (!coordinate) return undefined;
    const down = rows.coordinates[i], across = columns.coordinates[j], parts = [];
    for (let mode = 0; mode < down.length + across.length; mode++) parts.push((mode % 2 ? across : down)[mode >> 1]);
    return coordinate === "integer" ? parts[0] : `(${parts.join(",")})`;
  }

  index(i, j) {
    const { rows, columns } = this.grid;
    return rows.index.length && columns.index.length ? rows.index[i] + columns.index[j] : undefined;
  }

  facts(i, j) {
    const k = i * this.grid.columns.size + j, { cells } = this.grid;
    const known = [["coordinate", this.coordinate(i, j)], ["index", this.index(i, j)]];
    for (const name of ["offset", "byte", "bank", "thread", "value", "owners", "data"]) known.push([name, cells[name]?.[k]]);
    if (cells.descriptor) known.push(["descriptor", this.grid.descriptors[cells.descriptor[k]]]);
    for (const [name, texts] of Object.entries(cells.notes ?? {})) known.push([name, texts[k]]);
    for (const [name, texts] of Object.entries(cells.groups?.notes ?? {})) known.push([name, texts[cells.group[k]]]);
    for (const mark of this.known("marks", k) ?? []) known.push(["mark", mark]);
    return known.filter(([, value]) => value !== undefined && value !== null);
  }

  show(cell) {
    if (!cell) return;
    const i = Number(cell.dataset.row), j = Number(cell.dataset.column);
    list(document.getElementById("facts"), this.facts(i, j));
    if (inspector.classList.contains("empty")) {
      inspector.classList.remove("empty");
      cell.scrollIntoView({ block: "nearest", inline: "nearest" }); // the inspector has grown, and may cover the cell
    }
    this.light(i, j);
    followed(this.follow && { ...this.follow, index: this.index(i, j) });
  }

  light(i, j) {
    const { cells, columns } = this.grid;
    for (const cell of this.lit) cell.classList.remove("same");
    this.lit = [];
    const known = cells.thread ?? cells.offset;
    const wanted = known?.[i * columns.size + j];
    if (wanted === undefined || wanted === null) return;
    const all = this.table.tBodies[0].rows;
    for (let k = known.indexOf(wanted); k >= 0 && this.lit.length < 512; k = known.indexOf(wanted, k + 1)) {
      this.lit.push(all[Math.floor(k / columns.size)].cells[1 + (k % columns.size)]);
    }
    for (const cell of this.lit) cell.classList.add("same");
  }

  move(event) {
    const cell = event.target.closest("td");
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const { rows, columns } = this.grid;
    if (!cell || !(event.key in steps || event.key === "Home" || event.key === "End")) return;
    event.preventDefault();
    let i = Number(cell.dataset.row), j = Number(cell.dataset.column);
    if (event.key === "Home") j = 0;
    else if (event.key === "End") j = columns.size - 1;
    else [i, j] = [i + steps[event.key][0], j + steps[event.key][1]];
    if (i < 0 || j < 0 || i >= rows.size || j >= columns.size) return;
    const next = this.table.tBodies[0].rows[i].cells[1 + j];
    cell.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
}

export function list(dl, facts) {
  dl.innerHTML = facts.map(([name, value]) =>
    `<div data-fact="${escaped(name)}"><dt>${escaped(name)}</dt><dd>${escaped(value)}</dd></div>`).join("");
}

let asking = null;

async function followed(parameters) {
  const chain = document.getElementById("chain");
  asking?.abort();
  if (!parameters || parameters.index === undefined) {
    chain.innerHTML = "";
    return;
  }
  asking = new AbortController();
  try {
    const { steps } = await ask("/api/follow", parameters, asking.signal);
    chain.innerHTML = steps.map(({ name, value, how }) =>
      `<li data-step="${escaped(name)}">${escaped(name)} <b>${escaped(value)}</b> <small>${escaped(how)}</small></li>`).join("");
  } catch (error) {
    if (error.name !== "AbortError") chain.innerHTML = "";
  }
}

export function draw(container, grids, follow = () => undefined) {
  const views = grids.map((grid, number) => new GridView(grid, follow(number)));
  container.replaceChildren(...views.map((view) => view.figure));
  for (const view of views) view.clear();
}

const inspector = document.getElementById("inspector");
const touched = window.matchMedia("(pointer: coarse)");

function hint() {
  document.getElementById("hint").textContent = touched.matches ? "Tap a cell to read it."
    : "Point at a cell to read it, or use the arrow keys.";
}

touched.addEventListener("change", hint);
hint();

export function forget() {
  list(document.getElementById("facts"), []);
  inspector.classList.add("empty");
  followed(undefined);
}
