// A CTA's timeline: a lane for warps that did the same, a lane for each kind of asynchronous operation. Drawn is a window
// of events around the one that is looked at: time is an order, so events are evenly spaced.

import { escaped } from "./grid.js";

const WINDOW = 72;
const LANE = 26;
const LEFT = 150;
const COLOURS = new Map(Object.entries({ barrier: 3, store: 2, write: 2, wgmma: 5, tcgen05: 5, tma_load: 0, tma_store: 4, bulk_load: 0,
  bulk_store: 4, cp_async: 6 }));

export function ranges(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

export class Timeline {
  constructor(told) {
    this.told = told;
    const seen = new Map();
    told.events.forEach((event, number) => {
      for (const warp of event.warps) {
        if (event.from) continue; // another CTA's warps
        if (!seen.has(warp)) seen.set(warp, []);
        seen.get(warp).push(number);
      }
    });
    const lanes = new Map();
    for (const [warp, numbers] of [...seen].sort(([a], [b]) => a - b)) {
      const key = numbers.join(",");
      if (!lanes.has(key)) lanes.set(key, []);
      lanes.get(key).push(warp);
    }
    this.lanes = [...lanes.values()].map((warps) => ({ warps, name: `warp${warps.length > 1 ? "s" : ""} ${ranges(warps)}` }));
    this.spans = this.operations();
    for (const kind of new Set(this.spans.map((span) => span.kind))) this.lanes.push({ kind, warps: [], name: `${kind} in flight` });
  }

  operations() {
    const open = new Map(), spans = [];
    this.told.events.forEach((event, number) => {
      if (event.phase === "issue") {
        const span = { kind: event.kind, begin: number, end: this.told.events.length, name: event.name, operation: event.operation };
        open.set(event.operation, span);
        spans.push(span);
      } else if (event.phase === "complete" && open.has(event.operation)) open.get(event.operation).end = number;
    });
    return spans;
  }

  laneOf(warp) {
    return this.lanes.findIndex((lane) => lane.warps.includes(warp));
  }

  draw(container, at, choose) {
    const total = this.told.events.length;
    const first = Math.max(0, Math.min(at - WINDOW / 2, total - WINDOW)), last = Math.min(total, first + WINDOW);
    const width = Math.max(600, container.clientWidth - 2), unit = (width - LEFT - 8) / WINDOW;
    const height = this.lanes.length * LANE + 22, x = (number) => LEFT + (Math.min(Math.max(number, first), last) - first) * unit;
    const y = (lane) => 18 + lane * LANE;
    const parts = [`<svg class="timeline" role="img" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"
      aria-label="Events ${first} to ${last - 1} of ${total}"><defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4"
      markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>`];
    this.lanes.forEach((lane, number) => parts.push(`<rect class="lane" x="0" y="${y(number)}" width="${width}" height="${LANE - 4}"/>`,
      `<text x="6" y="${y(number) + 15}">${escaped(lane.name)}</text>`));
    for (let number = first; number < last; number += 8) parts.push(`<text x="${x(number)}" y="12">${number}</text>`);
    this.waits(parts, first, last, x, y);
    this.drawSpans(parts, first, last, x, y);
    this.drawEvents(parts, first, last, at, x, y, unit);
    this.arrows(parts, first, last, x, y, unit);
    parts.push(`<line class="cursor" x1="${x(at) + unit / 2}" x2="${x(at) + unit / 2}" y1="14" y2="${height}"/></svg>`);
    container.innerHTML = parts.join("");
    for (const drawn of container.querySelectorAll("[data-event]")) {
      drawn.addEventListener("click", () => choose(Number(drawn.dataset.event)));
    }
  }

  waits(parts, first, last, x, y) {
    for (const wait of this.told.waits) {
      const end = wait.end ?? this.told.events.length;
      if (end < first || wait.begin >= last) continue;
      for (const lane of new Set(wait.warps.map((warp) => this.laneOf(warp)))) {
        parts.push(`<rect class="c7f" data-wait="${wait.begin}" x="${x(wait.begin)}" y="${y(lane) + 7}" width="${Math.max(1, x(end) - x(wait.begin))}" height="8"><title>warps ${ranges(wait.warps)} wait for ${escaped(wait.for)}</title></rect>`);
      }
    }
  }

  drawSpans(parts, first, last, x, y) {
    for (const span of this.spans) {
      if (span.end < first || span.begin >= last) continue;
      const lane = this.lanes.findIndex(({ kind }) => kind === span.kind);
      parts.push(`<rect class="event c${COLOURS.get(span.kind) ?? 1}f" data-event="${span.begin}" fill-opacity="0.7" x="${x(span.begin)}" y="${y(lane) + 3}" width="${Math.max(2, x(span.end) - x(span.begin))}" height="${LANE - 10}"><title>${escaped(span.name)}: event ${span.begin} to ${span.end}</title></rect>`);
    }
  }

  drawEvents(parts, first, last, at, x, y, unit) {
    for (let number = first; number < last; number++) {
      const event = this.told.events[number];
      if (event.from || event.phase === "complete" || event.phase === "effect") continue;
      const now = number === at ? " current" : "";
      for (const lane of new Set(event.warps.map((warp) => this.laneOf(warp)))) {
        parts.push(`<rect class="event c${COLOURS.get(event.kind) ?? 1}f${now}" data-event="${number}" x="${x(number)}" y="${y(lane) + 2}" width="${Math.max(2, unit - 1)}" height="${LANE - 8}"><title>${number}: ${escaped(event.name)}, ${escaped(event.threads)}</title></rect>`);
      }
    }
  }

  arrows(parts, first, last, x, y, unit) {
    for (const { released_by: by, end, warps } of this.told.waits) {
      if (by === null || end === null || by < first || end >= last) continue;
      const releasing = this.told.events[by];
      const from = releasing.from ? -1 : this.laneOf(releasing.warps[0]), to = this.laneOf(warps[0]);
      const top = from < 0 ? 14 : y(from) + LANE / 2;
      parts.push(`<path class="released" d="M${x(by) + unit / 2} ${top}L${x(end) + unit / 2} ${y(to) + LANE / 2 - 2}"><title>event ${by} lets warps ${ranges(warps)} go on at ${end}</title></path>`);
    }
  }
}
