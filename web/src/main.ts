// The flame graph page: state in, boxes and text out.
import { button, element, save } from "./dom";
import { folded } from "./folded";
import { Graph, type Place } from "./graph";
import { Inverted } from "./inverted";
import { REST, layout } from "./layout";
import * as panels from "./panels";
import { decode, type Func, type Model, type View, type ViewName } from "./payload";
import * as state from "./state";
import { type Search, type Shown, mark, searchText, svg } from "./svg";
import { FunctionTable } from "./table";
import { duration, grouped, percent, visible, weight, whole } from "./text";
import { type Tree, follow, pathOf } from "./tree";

const VIEW_NAMES: Record<ViewName, string> = { on_cpu: "On-CPU", off_cpu: "Off-CPU", off_cpu_idle: "Idle" };
/** Time between the last key in the search field and the search. */
const SEARCH_DELAY_MS = 120;

/** What follows from a view and is worth keeping. */
interface Derived {
  own: Float64Array;
  inclusive: Float64Array;
  inverted: Inverted | null;
}

class App {
  private now: state.State = state.read(location.hash);
  private readonly trail: (readonly number[])[] = [];
  private readonly derived = new Map<View, Derived>();
  private shown!: Shown;
  private selected = 0;

  private readonly graph: Graph;
  private readonly table = new FunctionTable((func) => this.findFunction(func));
  private readonly help = panels.help();
  private readonly switches = new Map<string, HTMLButtonElement>();
  private readonly invert = button("invert", "Innermost frames first (i)", "Invert", () =>
    this.go({ inverted: !this.now.inverted, zoom: [] }),
  );
  private readonly reset = button("reset", "Zoom out to all (Home)", "Reset zoom", () =>
    this.go({ zoom: [] }),
  );
  private readonly search = element("input", {
    id: "search",
    type: "search",
    placeholder: "Search by regular expression  ( / )",
    "aria-label": "Search functions by regular expression",
    "aria-describedby": "search-result",
    spellcheck: "false",
    autocomplete: "off",
  });
  private readonly searchResult = element("output", { id: "search-result", for: "search" });
  private readonly ledger = element("section", { id: "ledger", "aria-label": "Ledger of samples" });
  private readonly legend = element("section", { id: "legend", "aria-label": "Colours" });
  private readonly details = element("section", { id: "details", "aria-label": "Selected frame" });
  private readonly status = element("div", { id: "status", role: "status", "aria-live": "polite" });
  private readonly tip = element("div", { id: "tip", "aria-hidden": "true" });
  private readonly body = element("div", { class: "split" });
  private readonly empty = element("p", { id: "empty" });

  constructor(
    private readonly model: Model,
    private readonly root: HTMLElement,
  ) {
    this.graph = new Graph({
      zoom: (node) => this.zoomTo(node),
      hover: (place, event) => this.hover(place, event),
    });
    this.build();
    this.listen();
    this.render(true);
  }

  private build(): void {
    const views = element("div", { class: "switch", role: "group", "aria-label": "What is weighed" });
    for (const view of this.model.views) {
      const amount = view.is_time ? duration(view.all.weight) : `${grouped(view.all.weight)} samples`;
      const why = view.recorded ? "none" : "not recorded";
      const text = view.all.samples > 0 ? amount : why;
      const made = button(`view-${view.view}`, `Show ${view.denominator}`, "", () =>
        this.go({ view: view.view, zoom: [] }),
      );
      made.append(VIEW_NAMES[view.view], " ", element("span", { class: "amount" }, text));
      made.disabled = view.all.samples === 0;
      this.switches.set(view.view, made);
      views.append(made);
    }
    const tools = element(
      "div",
      { class: "tools", role: "toolbar", "aria-label": "Tools" },
      views,
      this.invert,
      this.reset,
      element("div", { class: "find" }, this.search, this.searchResult),
      button("save-svg", "Save the visible view as SVG", "SVG", () =>
        save(this.fileName("svg"), "image/svg+xml", svg(this.shown)),
      ),
      button("save-folded", "Save the visible view as folded text; with a search, its matches", "Folded", () =>
        save(this.fileName("folded"), "text/plain", folded(this.shown)),
      ),
      button("show-help", "Keys (?)", "?", () => this.help.showModal()),
    );
    const brand = element("span", { class: "brand" }, "flame graph by throughline");
    const title = element("h1", {}, visible(this.model.title), brand);
    const header = element("header", {}, title, panels.captureFacts(this.model), tools);
    this.graph.scroller.append(this.empty);
    const aside = element("aside", {}, this.details, this.table.root);
    this.body.append(this.graph.scroller, aside);
    const footer = element("footer", {}, this.status, this.legend, this.ledger);
    this.root.append(header, panels.warnings(this.model), this.body, footer, this.tip, this.help);
  }

  private fileName(extension: string): string {
    const name = this.model.title.replace(/[^\w.-]+/g, "-").slice(0, 60) || "flame";
    return `${name}-${this.shown.view.view}${this.now.inverted ? "-inverted" : ""}.${extension}`;
  }

  private listen(): void {
    let timer = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => this.go({ search: this.search.value }, "replace"), SEARCH_DELAY_MS);
    });
    window.addEventListener("popstate", () => {
      this.now = state.read(location.hash);
      this.trail.length = 0;
      this.render(true);
    });
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("beforeprint", () => this.beforePrint());
    window.addEventListener("afterprint", () => document.getElementById("print")?.remove());
  }

  /** On paper the visible view stands as a drawing, since the canvas shows only what is scrolled to. */
  private beforePrint(): void {
    const drawing = new DOMParser().parseFromString(svg(this.shown), "image/svg+xml").documentElement;
    this.body.before(element("div", { id: "print" }, document.adoptNode(drawing)));
  }

  // State

  private go(change: Partial<state.State>, how: "push" | "replace" = "push"): void {
    const before = this.now;
    this.now = { ...before, ...change };
    if (change.view !== undefined || change.inverted !== undefined) this.trail.length = 0;
    const hash = state.write(this.now);
    try {
      if (how === "push") history.pushState(null, "", hash);
      else history.replaceState(null, "", hash);
    } catch {
      // Some containers of a page forbid it; the page then only loses its address.
    }
    this.render(change.zoom !== undefined);
  }

  private view(): View {
    const { views } = this.model;
    return (
      views.find((view) => view.view === this.now.view && view.all.samples > 0) ??
      views.find((view) => view.all.samples > 0) ??
      views[0]
    );
  }

  private derive(view: View): Derived {
    let found = this.derived.get(view);
    if (!found) {
      found = { ...view.tree.byKey(this.model.functions.length), inverted: null };
      this.derived.set(view, found);
    }
    return found;
  }

  private tree(view: View): Tree {
    if (!this.now.inverted) return view.tree;
    return (this.derive(view).inverted ??= new Inverted(view.tree));
  }

  /** The expression runs once for each function, however many places it has. */
  private find(view: View): Search | null {
    const text = this.now.search;
    const shown: Shown | undefined = this.shown;
    const before = shown?.search;
    if (before?.text === text && shown?.view === view) return before;
    this.search.setCustomValidity("");
    if (text === "") return null;
    const pattern = expression(text);
    if (!pattern) {
      this.search.setCustomValidity("not a regular expression");
      return null;
    }
    const matches = Uint8Array.from(this.model.functions, ({ label }) => (pattern.test(label) ? 1 : 0));
    return { text, matches, ...view.tree.find(matches) };
  }

  private render(moved: boolean): void {
    const began = performance.now();
    const before: Shown | undefined = this.shown;
    const view = this.view();
    const tree = this.tree(view);
    const zoom = follow(tree, this.now.zoom);
    const search = this.find(view);
    const { title, functions } = this.model;
    this.shown = { title, functions, view, tree, inverted: this.now.inverted, zoom, search };
    if (moved) this.selected = zoom;
    this.renderControls();
    if (before?.view !== view) this.renderView(view);
    if (before?.view !== view || before?.search !== search) {
      const { own, inclusive } = this.derive(view);
      this.table.show({ functions, view, own, inclusive, matches: search?.matches ?? null });
    }
    this.graph.show(this.shown, this.selected, moved);
    this.showDetails(this.selected);
    performance.clearMeasures("render");
    performance.measure("render", { start: began, end: performance.now() });
  }

  private renderView(view: View): void {
    const { own, inclusive } = this.derive(view);
    this.legend.replaceChildren(...panels.legend(view, this.model.functions, own, inclusive));
    this.ledger.replaceChildren(...panels.ledger(view));
    this.empty.hidden = view.all.samples > 0;
    this.empty.textContent = view.recorded ? "This capture holds no samples." : "Nothing was recorded.";
  }

  private renderControls(): void {
    const { view, search } = this.shown;
    for (const [name, made] of this.switches) made.setAttribute("aria-pressed", String(name === view.view));
    this.invert.setAttribute("aria-pressed", String(this.now.inverted));
    this.reset.disabled = this.shown.zoom === 0;
    if (document.activeElement !== this.search) this.search.value = this.now.search;
    this.searchResult.textContent = search ? searchText(search, view) : this.search.validationMessage;
    this.searchResult.title = search ? `matching places, summed once per sample, of ${whole(view)}` : "";
  }

  // Frames

  private zoomTo(node: number): void {
    this.trail.push(this.now.zoom);
    this.go({ zoom: pathOf(this.shown.tree, node) });
  }

  private back(): void {
    const before = this.trail.pop();
    if (before) this.go({ zoom: before });
    else if (this.shown.zoom !== 0) this.go({ zoom: this.now.zoom.slice(0, -1) });
  }

  private select(node: number): void {
    this.selected = node;
    this.graph.select(node);
    this.showDetails(node);
  }

  private detailsOf(node: number): panels.Details {
    const { view, tree } = this.shown;
    const func = this.shown.functions[tree.keyOf(node)] ?? null;
    const { own, inclusive } = this.derive(view);
    return {
      view,
      func,
      marks: mark(tree.marksOf(node))[1],
      total: tree.totalOf(node),
      self: this.now.inverted ? null : view.tree.own[node],
      functionOwn: func ? own[func.id] : 0,
      functionInclusive: func ? inclusive[func.id] : 0,
      lines: (func && view.linesOf.get(func.id)) ?? [],
    };
  }

  private showDetails(node: number): void {
    const details = this.detailsOf(node);
    this.details.replaceChildren(...panels.detailPanel(details));
    this.status.textContent = describe(details);
  }

  private hover(place: Place | null, event: MouseEvent | null): void {
    this.tip.hidden = place === null;
    if (place === null || !event) {
      this.status.textContent = describe(this.detailsOf(this.selected));
      return;
    }
    if (place.node === REST) {
      const { view } = this.shown;
      const share = percent(place.weight, view.all.weight);
      const text = `Frames too narrow to draw: ${weight(place.weight, view.is_time)}, ${share}`;
      this.status.textContent = text;
      this.tip.replaceChildren(text);
    } else {
      const details = this.detailsOf(place.node);
      this.status.textContent = describe(details);
      const rows = panels.detailRows(details).map(([name, text]) => element("div", {}, `${name}: ${text}`));
      const name = details.func ? visible(details.func.label) : "all";
      this.tip.replaceChildren(element("b", {}, name), ...rows);
    }
    const x = Math.min(event.clientX + 14, innerWidth - this.tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const fits = below + this.tip.offsetHeight < innerHeight;
    this.tip.style.left = `${Math.max(4, x)}px`;
    this.tip.style.top = `${fits ? below : Math.max(4, event.clientY - this.tip.offsetHeight - 12)}px`;
  }

  private findFunction(func: Func): void {
    const exact = `^${func.label.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")}$`;
    this.search.value = exact;
    this.go({ search: exact });
  }

  private nextMatch(step: 1 | -1): void {
    const { search, tree, zoom } = this.shown;
    if (!search) return;
    const found: number[] = [];
    layout(tree, zoom, this.graph.scroller.clientWidth, (node) => {
      if (node > 0 && search.matches[tree.keyOf(node)]) found.push(node);
    });
    if (found.length === 0) return;
    const at = found.indexOf(this.selected);
    const next = at < 0 ? (step > 0 ? 0 : found.length - 1) : (at + step + found.length) % found.length;
    this.select(found[next]);
  }

  // Keyboard

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
    const target = event.target as HTMLElement;
    if (target === this.search) {
      if (event.key === "Escape") {
        this.search.value = "";
        this.go({ search: "" }, "replace");
        this.graph.canvas.focus();
      } else if (event.key === "Enter") {
        this.go({ search: this.search.value }, "replace");
        this.graph.canvas.focus();
        this.nextMatch(1);
      }
      return;
    }
    // Buttons and headings keep their own Enter, and the page its scrolling keys.
    const onGraph = target === this.graph.canvas;
    const action = this.anywhere(event.key) ?? (onGraph ? this.onGraph(event.key) : undefined);
    if (!action) return;
    event.preventDefault();
    action();
  }

  private anywhere(key: string): (() => void) | undefined {
    const view = this.model.views[Number(key) - 1];
    if (view) return () => view.all.samples > 0 && this.go({ view: view.view, zoom: [] });
    switch (key) {
      case "/":
        return () => this.search.select();
      case "i":
        return () => this.invert.click();
      case "n":
        return () => this.nextMatch(1);
      case "N":
        return () => this.nextMatch(-1);
      case "?":
        return () => this.help.showModal();
      case "Escape":
      case "Backspace":
        return () => this.back();
      default:
        return undefined;
    }
  }

  private onGraph(key: string): (() => void) | undefined {
    const { tree } = this.shown;
    const at = this.selected;
    const move = (node: number) => () => node >= 0 && this.select(node);
    switch (key) {
      case "ArrowDown":
        return move(tree.firstChild(at));
      case "ArrowUp":
        return move(at === 0 ? -1 : tree.parentOf(at));
      case "ArrowRight":
        return move(tree.nextSibling(at));
      case "ArrowLeft":
        return move(siblingBefore(tree, at));
      case "Enter":
        return () => this.zoomTo(at);
      case "Home":
        return () => this.go({ zoom: [] });
      default:
        return undefined;
    }
  }
}

function siblingBefore(tree: Tree, node: number): number {
  if (node === 0) return -1;
  let at = tree.firstChild(tree.parentOf(node));
  let before = -1;
  while (at !== node) {
    before = at;
    at = tree.nextSibling(at);
  }
  return before;
}

/** The search as an expression; null when it is none. Without a capital letter it ignores case. */
function expression(text: string): RegExp | null {
  const flags = /\p{Lu}/u.test(text) ? "" : "i";
  // The Unicode mode reads names by character but forbids needless escapes, which the other mode takes.
  for (const mode of ["u", ""]) {
    try {
      return new RegExp(text, mode + flags);
    } catch {
      // The next mode may take it.
    }
  }
  return null;
}

/** A frame in one line. */
function describe(details: panels.Details): string {
  const name = details.func ? visible(details.func.label) : "all";
  const rows = panels.detailRows(details).map(([title, text]) => `${title.toLowerCase()} ${text}`);
  return [name, ...rows].join(" \u00b7 ");
}

async function start(): Promise<void> {
  const root = document.getElementById("app");
  const payload = document.getElementById("payload");
  if (!root || !payload) return;
  try {
    const model = await decode(payload.textContent ?? "");
    payload.remove();
    new App(model, root);
    root.dataset["ready"] = "true";
    performance.mark("ready");
  } catch (error) {
    root.append(element("p", { id: "failure", role: "alert" }, `The data of this page cannot be read: ${error}`));
  }
}

void start();
