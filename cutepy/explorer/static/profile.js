// A saved profile as a flame graph: a row for each depth of scopes, a width for the time of each; a click zooms in.

import { ask, busy, failed, upload } from "./api.js";
import { escaped, list } from "./grid.js";

const $ = (id) => document.getElementById(id);
const ROW = 24;

export class ProfileView {
  constructor(remember) {
    this.remember = remember;
    this.told = null;
    $("profile-file").addEventListener("change", () => busy(() => this.open($("profile-file").files[0])));
    $("profile-form").addEventListener("submit", (event) => event.preventDefault());
    $("profile").addEventListener("change", () => busy(async () => {
      await this.load($("profile").value, "");
      this.keep();
    }));
    window.addEventListener("resize", () => this.told && !$("view-profile").hidden && this.draw());
  }

  keep() {
    this.remember({ view: "profile", profile: $("profile").value, at: this.at.join(",") });
  }

  async open(file) {
    if (!file) return;
    try {
      const { id } = await upload(file, "/api/profiles");
      await this.restore({ profile: id });
      this.keep();
    } catch (error) {
      failed("profile", error, $("profile-form"));
    }
  }

  // Show what the address says; a profile that is not named is the last that was opened.
  async restore(given) {
    try {
      const { profiles } = await ask("/api/profiles");
      const chosen = given.profile ?? profiles[profiles.length - 1]?.id;
      $("profile-none").hidden = profiles.length > 0;
      $("profile-body").hidden = !chosen;
      $("profile").replaceChildren(...profiles.map(({ id, name }) => new Option(name, id, false, id === chosen)));
      if (chosen) await this.load(chosen, given.at ?? "");
    } catch (error) {
      $("profile-body").hidden = true;
      failed("profile", error, $("profile-form"));
    }
  }

  async load(id, at) {
    this.told = await ask(`/api/profiles/${id}/flame`);
    failed("profile", null, $("profile-form"));
    const from = [this.told.gpu, this.told.source && `recorded by ${this.told.source}`, ...this.told.notes];
    $("profile-notes").textContent = from.filter(Boolean).join("; ");
    const places = at === "" ? [] : at.split(",").map(Number);
    this.at = this.node(places) ? places : [];
    this.draw();
  }

  // A place is the numbers of the children on the way down from the root.
  node(place) {
    return place.reduce((node, number) => node?.children[number], this.told.root);
  }

  zoom(place) {
    this.at = place;
    this.keep();
    this.draw();
  }

  value(node) {
    return this.told.unit === "ns" ? node.ns : node.launches;
  }

  draw() {
    const container = $("flame"), width = Math.max(300, container.clientWidth - 2), boxes = [];
    this.at.forEach((_, depth) => boxes.push({ place: this.at.slice(0, depth), x: 0, width, depth }));
    this.place(this.at, 0, width, this.at.length, boxes);
    const height = ROW * (1 + Math.max(...boxes.map(({ depth }) => depth)));
    const drawn = boxes.map((box) => this.box(box)).join("");
    container.innerHTML = `<svg class="timeline flame" role="tree" width="${width}" height="${height}"
      viewBox="0 0 ${width} ${height}" aria-label="Flame graph">${drawn}</svg>`;
    for (const each of container.querySelectorAll("[data-place]")) {
      const place = each.dataset.place === "" ? [] : each.dataset.place.split(",").map(Number);
      each.addEventListener("click", () => this.zoom(place));
      each.addEventListener("mouseenter", () => this.facts(this.node(place)));
      each.addEventListener("focus", () => this.facts(this.node(place)));
      each.addEventListener("keydown", (event) => ["Enter", " "].includes(event.key) && this.zoom(place));
    }
    this.facts(this.node(this.at));
  }

  place(place, x, width, depth, boxes) {
    const node = this.node(place), all = this.value(node);
    boxes.push({ place, x, width, depth });
    let left = x;
    node.children.forEach((child, number) => {
      const share = all ? (width * this.value(child)) / all : 0;
      if (share >= 1) this.place([...place, number], left, share, depth + 1, boxes);
      left += share;
    });
  }

  box({ place, x, width, depth }) {
    const node = this.node(place), letters = Math.floor((width - 8) / 7);
    const size = `  ${this.size(node)}`;
    const text = node.name.length + size.length <= letters ? node.name + size : node.name.length <= letters ? node.name
      : letters > 3 ? `${node.name.slice(0, letters - 1)}…` : "";
    const colour = node.kind === "scope" ? depth % 3 : node.kind === "kernel" ? 5 : 7;
    return `<g role="treeitem" tabindex="0" data-place="${place.join(",")}" aria-label="${escaped(this.line(node))}">
      <title>${escaped(this.line(node))}</title><rect class="event c${colour}f" x="${x}" y="${depth * ROW + 1}"
      width="${Math.max(1, width - 1)}" height="${ROW - 2}"/><text x="${x + 4}" y="${depth * ROW + 16}">${escaped(text)}</text></g>`;
  }

  line(node) {
    return `${node.name}: ${this.size(node)}`;
  }

  size(node) {
    const share = this.value(node) / (this.value(this.told.root) || 1);
    const size = this.told.unit === "ns" ? time(node.ns) : `${node.launches} launches`;
    return `${size}, ${(100 * share).toFixed(1)}%`;
  }

  facts(node) {
    const facts = [[node.kind, node.name], ["calls", node.calls], ["launches", node.launches]];
    if (node.ns) facts.push(["time", time(node.ns)]);
    if (node.ns && node.calls > 1) facts.push(["time of a call", time(node.ns / node.calls)]);
    if (node.tflops) facts.push(["TFLOP/s", node.tflops.toFixed(1)]);
    if (node.tbytes) facts.push(["TB/s", node.tbytes.toFixed(2)]);
    if (node.roofline) facts.push(["of the roofline", `${(100 * node.roofline).toFixed(0)}%`]);
    if (node.gap_ns) facts.push(["gaps between launches", time(node.gap_ns)]);
    if (node.overlap_ns) facts.push(["overlap of launches", time(node.overlap_ns)]);
    list($("profile-facts"), facts);
  }
}

function time(ns) {
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} us`;
  return ns < 1e9 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e9).toFixed(2)} s`;
}
