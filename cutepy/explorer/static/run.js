// A simulated run: choose a CTA, scrub through its events, look at barriers, waits and shared memory.

import { ask, busy, failed, upload } from "./api.js";
import { draw, escaped, forget, list } from "./grid.js";
import { ranges, Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);

export class RunView {
  constructor(remember) {
    this.remember = remember;
    this.runs = [];
    this.timeline = null;
    $("file").addEventListener("change", () => busy(() => this.open($("file").files[0])));
    $("run-form").addEventListener("submit", (event) => event.preventDefault());
    for (const name of ["run", "launch", "cta"]) $(name).addEventListener("change", () => busy(() => this.chosen(name)));
    $("at").addEventListener("input", () => this.show());
    $("at").addEventListener("change", () => this.keep("push"));
    $("previous-event").addEventListener("click", () => this.to(Number($("at").value) - 1));
    $("next-event").addEventListener("click", () => this.to(Number($("at").value) + 1));
    $("shared-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.keep("push");
      this.shared();
    });
    window.addEventListener("resize", () => this.timeline && this.show());
  }

  state() {
    const form = Object.fromEntries(new FormData($("shared-form")));
    return { view: "run", run: $("run").value, launch: $("launch").value, cta: $("cta").value, at: $("at").value, ...form };
  }

  keep(how) {
    this.remember(this.state(), how);
  }

  async open(file) {
    if (!file) return;
    try {
      const told = await upload(file);
      failed("run", null, $("run-form"));
      await this.restore({ run: told.id });
      this.keep("push");
    } catch (error) {
      failed("run", error, $("run-form"));
    }
  }

  // Show what the address says; a run that is not named is the last that was opened.
  async restore(given) {
    try {
      this.runs = (await ask("/api/runs")).runs;
      $("run-none").hidden = this.runs.length > 0;
      const run = given.run ? this.runs.find(({ id }) => id === given.run) : this.runs[this.runs.length - 1];
      if (given.run && !run) throw new Error(`The run ${given.run} is not open here: open its file.`);
      $("run-body").hidden = !run;
      options($("run"), this.runs.map(({ id, name }) => [id, name]), run?.id);
      if (!run) return;
      this.menus(given.launch ?? "0", given.cta);
      for (const name of ["layout", "dtype", "offset"]) {
        if (given[name] !== undefined) $("shared-form").elements.namedItem(name).value = given[name];
        else if (name !== "dtype") $("shared-form").elements.namedItem(name).value = name === "offset" ? "0" : "";
      }
      await this.load(given.at);
    } catch (error) {
      $("run-body").hidden = true;
      failed("run", error, $("run-form"));
    }
  }

  menus(launch, cta) {
    const run = this.runs.find(({ id }) => id === $("run").value);
    options($("launch"), run.launches.map(({ name, grid }, number) => [String(number), `${number}: ${name} ${grid.join("x")}`]), launch);
    const chosen = run.launches[Number($("launch").value)];
    options($("cta"), (chosen?.ctas ?? []).map(({ cta: at }) => [at.join(","), at.join(",")]), cta);
  }

  async chosen(name) {
    if (name !== "cta") this.menus(name === "run" ? "0" : $("launch").value, undefined);
    await this.load("0");
    this.keep("push");
  }

  async load(at) {
    const { run, launch, cta } = this.state();
    const told = await ask(`/api/runs/${run}/timeline`, { launch, cta });
    failed("run", null, $("run-form"));
    forget();
    this.told = told;
    this.timeline = new Timeline(told);
    $("at").max = String(Math.max(0, told.events.length - 1));
    $("at").value = String(at ?? 0);
    $("tiles").innerHTML = told.tiles.length ? "Tiles of tensor copies: " : "";
    for (const tile of told.tiles) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `0x${tile.offset.toString(16)} ${tile.dtype} ${tile.box.join("x")}`;
      button.addEventListener("click", () => this.look(tile));
      $("tiles").append(button);
    }
    this.show();
  }

  look(tile) {
    for (const name of ["layout", "dtype", "offset"]) $("shared-form").elements.namedItem(name).value = String(tile[name]);
    this.keep("push");
    this.shared();
  }

  to(number) {
    $("at").value = String(number);
    this.show();
    this.keep("push");
  }

  show() {
    const at = Number($("at").value), { events } = this.told;
    $("event-number").textContent = `${at} of ${events.length}`;
    this.timeline.draw($("timeline"), at, (number) => this.to(number));
    this.event(events[at], at);
    this.barriers(at);
    this.waiting(at);
    this.shared();
  }

  event(event, at) {
    if (!event) return list($("event-facts"), []);
    const { ptx, line, place } = this.told.instructions[event.instruction];
    const facts = [["event", `${at}: ${this.named(event)}`], ["by", event.from ? `${event.threads} of ${event.from}` : event.threads],
      ["line", short(place || line)], ["PTX", ptx]];
    if (event.wgmma) facts.push(["descriptors", `A ${event.wgmma.a.join(" ") || "in registers"}; B ${event.wgmma.b.join(" ")}`]);
    for (const box of event.boxes ?? []) {
      facts.push(["box", `${box.operation} ${box.box.join("x")} ${box.dtype} at (${box.coordinates.join(",")}), shared 0x${box.address.toString(16)}, ${box.swizzle}`]);
    }
    if (event.writes) facts.push(["writes", event.writes.slice(0, 8).map(([start, length]) => `${length} bytes from 0x${start.toString(16)}`).join(", ")]);
    return list($("event-facts"), facts);
  }

  named(event) {
    if (!event.barrier) return event.name;
    const name = this.told.barriers[String(event.barrier.address)];
    return name ? event.name.replace(/mbarrier 0x[0-9a-f]+/, name) : event.name;
  }

  barriers(at) {
    const now = new Map();
    this.told.events.slice(0, at + 1).forEach((event, number) => {
      if (event.barrier) now.set(event.barrier.address, { ...event.barrier, number });
    });
    const head = "<tr><th>mbarrier</th><th>phase</th><th>arrivals lacking</th><th>bytes lacking</th></tr>";
    $("barriers").innerHTML = head + Object.entries(this.told.barriers).map(([address, name]) => {
      const state = now.get(Number(address));
      const cells = state ? [state.phase, `${state.pending} of ${state.expected}`, state.pending_bytes] : ["-", "-", "-"];
      return `<tr${state?.number === at ? ' class="now"' : ""}><td>${escaped(name)}</td>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
    }).join("");
  }

  waiting(at) {
    const items = this.told.waits.filter(({ begin, end }) => begin <= at && (end === null || at < end)).map((wait) => {
      const by = wait.released_by === null ? null : this.told.events[wait.released_by];
      const until = wait.end === null ? "for ever" : by ? `until event ${wait.released_by}: ${this.named(by)} by ${by.from ?? ""} warps ${ranges(by.warps)}`
        : `until event ${wait.end}`;
      return `<li>warps ${ranges(wait.warps)} wait for ${escaped(wait.for)}, ${escaped(until)}</li>`;
    });
    $("waiting").innerHTML = items.join("") || "<li>nobody</li>";
    const flying = this.timeline.spans.filter(({ begin, end }) => begin <= at && at < end);
    $("in-flight").innerHTML = flying.map(({ name, operation }) => `<li>#${operation} ${escaped(name)}</li>`).join("") || "<li>nothing</li>";
  }

  shared() {
    return busy(() => this.sharedNow());
  }

  async sharedNow() {
    this.asking?.abort();
    this.asking = new AbortController();
    const { run, launch, cta, at, layout, dtype, offset } = this.state();
    try {
      const given = layout ? { layout, dtype, offset } : {};
      const told = await ask(`/api/runs/${run}/shared`, { launch, cta, at, ...given }, this.asking.signal);
      failed("shared", null, $("shared-form"));
      draw($("shared-picture"), told.picture.grids);
    } catch (error) {
      if (error.name === "AbortError") return;
      $("shared-picture").replaceChildren();
      failed("shared", error, $("shared-form"));
    }
  }
}

// Of a path the last two parts: "at gemm/kernel.py:166".
function short(place) {
  return place.replace(/[^\s]*\/(?=[^\s/]+\/[^\s/]+:\d+)/g, "");
}

function options(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value, false, value === chosen)));
}
