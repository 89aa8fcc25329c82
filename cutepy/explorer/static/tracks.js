// Timelines of warps, copies and tensor cores in time: a predicted and a measured one above each other, on one time axis.

import { ask, busy, failed, upload } from "./api.js";
import { escaped, list } from "./grid.js";

const $ = (id) => document.getElementById(id);
const ROW = 15;
const GAP = 5;
const HEAD = 20;
const LIFE = "runs"; // of a warp, behind its waits
const PARTS = ["upper", "lower"];
// Kinds of events, by their names: colour, and the words of the legend.
const KINDS = [
  [new RegExp(`^${LIFE}$`), 3, "warp at work"],
  [/^(wait|acquire|turn|hand)/, 7, "waits"],
  [/^(load|cp\.async)/, 0, "loads"],
  [/^store/, 4, "stores"],
  [/^(m64|multiply|mma|wgmma)/, 5, "tensor cores"],
  [/^(softmax|promote)/, 6, "softmax"],
  [/^(epilogue|fill|finish)/, 2, "epilogue"],
  [/./, 1, "other ranges"],
];

function kindOf(name) {
  return KINDS.find(([pattern]) => pattern.test(name));
}

export function time(us, step = us) {
  const small = Math.abs(step) < 0.0995;
  const value = small ? us * 1000 : us, digits = small ? (Math.abs(step) < 0.00995 ? 1 : 0) : Math.abs(step) < 9.95 ? 2 : 1;
  return `${value.toFixed(digits)} ${small ? "ns" : "us"}`;
}

// The SM comes before the kernel, whose name may be long.
function placed(name) {
  const at = name.lastIndexOf(", SM ");
  return at < 0 ? name : `${name.slice(at + 2)}: ${name.slice(0, at)}`;
}

// Steps of the axis: 1, 2 or 5 times a power of ten.
function step(span, most) {
  const least = span / most, power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= least);
}

export class TracksView {
  constructor(remember) {
    this.remember = remember;
    this.told = {};
    this.chosen = null;
    $("timeline-form").addEventListener("submit", (event) => event.preventDefault());
    $("timeline-file").addEventListener("change", () => busy(() => this.open($("timeline-file").files[0])));
    for (const part of PARTS) {
      $(part).addEventListener("change", () => busy(() => this.pick(part, $(part).value, "")));
      $(`${part}-process`).addEventListener("change", () => busy(() => this.pick(part, $(part).value, $(`${part}-process`).value)));
      this.listen($(`${part}-tracks`));
    }
    const moves = { "zoom-in": [0.5, 0], "zoom-out": [2, 0], "zoom-left": [1, -0.25], "zoom-right": [1, 0.25] };
    for (const [id, [factor, shift]] of Object.entries(moves)) $(id).addEventListener("click", () => this.zoom(factor, 0.5, shift));
    $("zoom-all").addEventListener("click", () => this.show(0, this.end()));
    $("track-search").addEventListener("input", () => this.draw());
    window.addEventListener("resize", () => !$("view-timeline").hidden && this.draw());
  }

  async open(file) {
    if (!file) return;
    try {
      const { id } = await upload(file, "/api/timelines");
      const upper = this.told.upper && !this.told.lower ? $("upper").value : id;
      await this.restore({ upper, lower: upper === id ? "" : id });
      this.keep();
    } catch (error) {
      failed("timeline", error, $("timeline-form"));
    }
  }

  keep() {
    this.remember({ view: "timeline", upper: $("upper").value, upper_process: $("upper-process").value,
      lower: $("lower").value, lower_process: $("lower-process").value });
  }

  // Show what the address says; unnamed, a predicted timeline is above and a measured one below.
  async restore(given) {
    try {
      const { timelines } = await ask("/api/timelines");
      const first = timelines.find(({ kind }) => kind === "predicted") ?? timelines[0];
      const upper = given.upper ?? first?.id ?? "";
      const lower = given.lower ?? (given.upper ? "" : timelines.find(({ id, kind }) => id !== upper && kind === "measured")?.id ?? "");
      $("timeline-none").hidden = timelines.length > 0;
      $("timeline-body").hidden = !upper;
      for (const [part, at] of [["upper", upper], ["lower", lower]]) {
        const options = timelines.map(({ id, name, kind }) => new Option(`${kind}: ${name}`, id, false, id === at));
        $(part).replaceChildren(...(part === "lower" ? [new Option("none", "", false, !at)] : []), ...options);
        await this.load(part, at, given[`${part}_process`] ?? "");
      }
      this.all();
      failed("timeline", null, $("timeline-form"));
    } catch (error) {
      $("timeline-body").hidden = true;
      failed("timeline", error, $("timeline-form"));
    }
  }

  async pick(part, id, process) {
    try {
      await this.load(part, id, process);
      failed("timeline", null, $("timeline-form"));
    } catch (error) {
      failed("timeline", error, $("timeline-form"));
    }
    this.keep();
    this.all();
  }

  async load(part, id, process) {
    const told = id ? await ask(`/api/timelines/${id}`, { process }) : null;
    if (told) this.told[part] = told;
    else delete this.told[part];
    $(`${part}-process`).replaceChildren(...(told?.processes ?? []).map((name, number) => new Option(placed(name), number, false, number === told.process)));
    $(`${part}-process`).closest(".field").hidden = !told;
    $(`${part}-title`).textContent = told ? `${told.kind}: ${told.processes[told.process]} (${told.name})` : "";
  }

  end() {
    const ends = PARTS.flatMap((part) => this.told[part]?.tracks ?? []).flatMap(({ events }) => events.map(([, end]) => end));
    return ends.reduce((most, each) => Math.max(most, each), 0) || 1;
  }

  all() {
    this.chosen = null;
    this.facts(null);
    this.whole = this.end();
    this.show(0, this.whole);
  }

  // Show a span of time, in microseconds; it stays within the timelines.
  show(from, to) {
    const span = Math.min(Math.max(to - from, 0.002), this.whole);
    this.from = Math.max(0, Math.min(from, this.whole - span));
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, at = 0.5, shift = 0) {
    const span = this.to - this.from, centre = this.from + at * span, wide = Math.min(span * factor, this.whole);
    this.show(centre - at * wide + shift * span, centre + (1 - at) * wide + shift * span);
  }

  listen(container) {
    let begun = null;
    const share = (event) => {
      const box = container.getBoundingClientRect(), left = this.left ?? 0;
      return Math.min(1, Math.max(0, (event.clientX - box.left - left) / Math.max(1, box.width - left)));
    };
    container.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, share(event));
    }, { passive: false });
    container.addEventListener("pointerdown", (event) => {
      begun = { x: event.clientX, from: this.from, to: this.to, moved: false };
    });
    window.addEventListener("pointermove", (event) => {
      if (!begun) return;
      const far = event.clientX - begun.x, width = container.clientWidth - this.left;
      if (!begun.moved && Math.abs(far) < 4) return;
      begun.moved = true;
      const us = (far / width) * (begun.to - begun.from);
      this.show(begun.from - us, begun.to - us);
    });
    window.addEventListener("pointerup", () => {
      this.dragged = Boolean(begun?.moved);
      begun = null;
    });
    container.addEventListener("click", (event) => {
      const span = event.target.closest("[data-span]");
      if (span && !this.dragged) this.choose(container.dataset.part, ...span.dataset.span.split(",").map(Number));
    });
    container.addEventListener("mouseover", (event) => {
      const span = event.target.closest("[data-span]");
      if (span && !this.chosen) this.facts(this.event(container.dataset.part, ...span.dataset.span.split(",").map(Number)));
    });
    container.addEventListener("keydown", (event) => this.key(container.dataset.part, event));
  }

  key(part, event) {
    const moves = { w: [0.5, 0], s: [2, 0], a: [1, -0.25], d: [1, 0.25] };
    const move = moves[event.key.toLowerCase()];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (move) this.zoom(move[0], 0.5, move[1]);
    else if (event.key === "Escape") this.all();
    else if (["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"].includes(event.key)) this.walk(part, event.key);
    else return;
    event.preventDefault();
    $(`${part}-tracks`).querySelector("svg").focus();
  }

  // The keyboard goes from event to event of a track, and from track to track.
  walk(part, key) {
    const tracks = this.told[part].tracks, down = { ArrowDown: 1, ArrowUp: -1 }[key];
    let { track, number } = this.chosen?.part === part ? this.chosen : { track: 0, number: -1 };
    if (down) {
      const at = number < 0 ? this.from : tracks[track].events[number][0];
      track = Math.min(tracks.length - 1, Math.max(0, track + down));
      number = tracks[track].events.findIndex(([, end]) => end >= at);
      if (number < 0) number = tracks[track].events.length - 1;
    } else number = Math.min(tracks[track].events.length - 1, Math.max(0, number + (key === "ArrowRight" ? 1 : -1)));
    const [begin, end] = tracks[track].events[number], span = this.to - this.from;
    if (end < this.from || begin > this.to) {
      this.from = begin - span / 2;
      this.to = this.from + span;
    }
    this.choose(part, track, number);
  }

  event(part, track, number) {
    const told = this.told[part], [begin, end, name, , args] = told.tracks[track].events[number];
    return { told, track: told.tracks[track].name, begin, end, name, args };
  }

  choose(part, track, number) {
    this.chosen = { part, track, number };
    this.facts(this.event(part, track, number));
    this.show(this.from, this.to);
    $("timeline-code").scrollIntoView({ block: "nearest" });
  }

  facts(event) {
    $("timeline-code").replaceChildren();
    if (!event) return list($("timeline-facts"), []);
    const { line, ...rest } = event.args;
    const more = Object.entries(rest).map(([name, value]) => [name, String(value)]);
    list($("timeline-facts"), [["event", event.name], ["of", event.track], ["took", time(event.end - event.begin)],
      ["from", time(event.begin, event.end)], ["to", time(event.end)], ...more, ...(line ? [["line", line]] : [])]);
    if (!line) return undefined;
    const at = line.lastIndexOf(":"), number = Number(line.slice(at + 1)), text = event.told.sources[line.slice(0, at)] ?? {};
    const drawn = Object.keys(text).map(Number).filter((each) => Math.abs(each - number) <= 6).sort((a, b) => a - b)
      .map((each) => `${each === number ? "<mark>" : ""}${String(each).padStart(5)}  ${escaped(text[each])}${each === number ? "</mark>" : ""}`);
    $("timeline-code").innerHTML = drawn.join("\n");
    return undefined;
  }

  draw() {
    if (this.from === undefined) return;
    const legend = new Map();
    const names = PARTS.flatMap((part) => this.told[part]?.tracks ?? []).map(({ name }) => name.length);
    const width = Math.max(300, $("upper-tracks").clientWidth || $("timeline-body").clientWidth);
    this.left = Math.min(0.35 * width, 16 + 6.7 * Math.max(6, ...names));
    for (const part of PARTS) $(`${part}-tracks`).innerHTML = this.told[part] ? this.panel(part, width, legend) : "";
    $("zoom-span").textContent = `${time(this.from, this.to - this.from)} to ${time(this.to, this.to - this.from)}`;
    $("track-legend").innerHTML = KINDS.filter(([, , words]) => legend.has(words)).map(([, colour, words]) =>
      `<span class="c${colour}">&nbsp;&nbsp;&nbsp;</span> ${words}`).join(" ");
  }

  panel(part, width, legend) {
    const { tracks, kind } = this.told[part], left = this.left, span = this.to - this.from;
    const x = (us) => left + ((us - this.from) / span) * (width - left - 4);
    const tops = [];
    let height = HEAD;
    for (const { rows } of tracks) {
      tops.push(height);
      height += rows * ROW + GAP;
    }
    const letters = Math.floor((left - 8) / 6.7), parts = [];
    const ticks = step(span, Math.max(2, Math.floor((width - left) / 90)));
    for (let us = Math.ceil(this.from / ticks) * ticks; us <= this.to; us += ticks) {
      parts.push(`<line class="axis" x1="${x(us)}" x2="${x(us)}" y1="${HEAD - 4}" y2="${height}"/>`);
      if (x(us) < width - 40) parts.push(`<text class="tick" x="${x(us) + 2}" y="11">${time(us, ticks)}</text>`);
    }
    tracks.forEach(({ name, rows, events }, track) => {
      const label = name.length <= letters ? name : `${name.slice(0, Math.max(1, letters - 1))}…`;
      parts.push(`<rect class="lane" x="${left}" y="${tops[track]}" width="${width - left}" height="${rows * ROW}" fill-opacity="0.5"/>`);
      this.spans(parts, events, track, tops[track], x, left, width, part, legend);
      parts.push(`<text x="4" y="${tops[track] + 11}">${escaped(label)}<title>${escaped(name)}</title></text>`);
    });
    return `<svg class="timeline" tabindex="0" role="group" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"
      aria-label="${kind} timeline, ${time(this.from)} to ${time(this.to)}">${parts.join("")}</svg>`;
  }

  // Events narrower than a pixel are drawn once a pixel and row.
  spans(parts, events, track, top, x, left, width, part, legend) {
    const wanted = $("track-search").value.trim().toLowerCase(), drawn = new Map();
    events.forEach(([begin, end, name, row], number) => {
      if (end < this.from || begin > this.to) return;
      const [, colour, words] = kindOf(name), from = Math.max(left, x(begin)), to = Math.min(width - 4, x(end));
      legend.set(words, true);
      const wide = to - from, place = Math.floor(from);
      const chosen = this.chosen && this.chosen.part === part && this.chosen.track === track && this.chosen.number === number;
      const found = !wanted || name.toLowerCase().includes(wanted);
      if (wide < 1 && !chosen) {
        if (drawn.get(row) === place) return;
        drawn.set(row, place);
      }
      const style = `c${colour}f${found ? "" : " dim"}${chosen ? " chosen" : ""}`;
      const letters = Math.floor((wide - 6) / 6.7), y = top + row * ROW;
      const text = name.length <= letters ? name : letters > 4 ? `${name.slice(0, letters - 1)}…` : "";
      parts.push(`<rect class="span ${style}" data-span="${track},${number}" x="${from}" y="${y}" width="${wide > 3 ? wide - 0.5 : Math.max(1, wide)}" height="${ROW - 1}"><title>${escaped(name)}: ${time(end - begin)}</title></rect>`);
      if (text && found && name !== LIFE) parts.push(`<text class="inside" x="${from + 3}" y="${y + 11}">${escaped(text)}</text>`);
    });
  }
}
