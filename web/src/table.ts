// The table of functions: the graph's numbers as text that can be sorted, copied and read aloud.
import { breakable, element } from "./dom";
import type { Func, View } from "./payload";
import { grouped, percent, duration, visible, whole } from "./text";

type Column = "function" | "self" | "inclusive";

/** Rows shown at once; more on request, since a page may hold 100,000 functions. */
const PAGE = 200;

const HEADINGS: readonly [Column, string, string][] = [
  ["function", "Function", ""],
  ["self", "Self", "Weight of samples whose innermost frame is this function"],
  ["inclusive", "Inclusive", "Weight of samples with this function anywhere in the stack, each once"],
];

export interface Content {
  functions: readonly Func[];
  view: View;
  own: Float64Array;
  inclusive: Float64Array;
  /** Only these functions, with a search. */
  matches: Uint8Array | null;
}

export class FunctionTable {
  readonly root: HTMLElement;
  private readonly caption = element("caption", { id: "functions-caption" });
  private readonly headings = new Map<Column, HTMLElement>();
  private readonly body = element("tbody");
  private readonly more: HTMLButtonElement;
  private content: Content | null = null;
  private sort: Column = "self";
  private descending = true;
  private limit = PAGE;

  constructor(private readonly chosen: (func: Func) => void) {
    const head = element("tr");
    for (const [column, text, title] of HEADINGS) {
      const sorter = element("button", { type: "button", title, "data-sort": column }, text);
      sorter.addEventListener("click", () => this.sortBy(column));
      const span = column === "function" ? "1" : "2";
      const heading = element("th", { scope: "col", colspan: span, class: column }, sorter);
      this.headings.set(column, heading);
      head.append(heading);
    }
    const columns = ["", "amount", "percent", "amount", "percent"].map((name) => element("col", { class: name }));
    const table = element(
      "table",
      { id: "functions" },
      this.caption,
      element("colgroup", {}, ...columns),
      element("thead", {}, head),
      this.body,
    );
    this.more = element("button", { type: "button", id: "more-functions" });
    this.more.addEventListener("click", () => {
      this.limit += 5 * PAGE;
      this.fill();
    });
    this.root = element("div", { class: "functions" }, table, this.more);
  }

  show(content: Content): void {
    this.content = content;
    this.limit = PAGE;
    this.fill();
  }

  private sortBy(column: Column): void {
    this.descending = column === this.sort ? !this.descending : column !== "function";
    this.sort = column;
    this.fill();
  }

  private fill(): void {
    if (!this.content) return;
    const { functions, inclusive, matches, view } = this.content;
    const rows = functions.filter(({ id }) => inclusive[id] > 0 && (!matches || matches[id]));
    rows.sort(this.order(this.content));
    for (const [column, heading] of this.headings) {
      const direction = this.descending ? "descending" : "ascending";
      heading.setAttribute("aria-sort", column === this.sort ? direction : "none");
    }
    const what = `${matches ? "matching " : ""}${rows.length === 1 ? "function" : "functions"}`;
    this.caption.textContent = `${grouped(rows.length)} ${what}; shares of ${whole(view)}`;
    this.body.replaceChildren(...rows.slice(0, this.limit).map((func) => this.row(func)));
    const left = rows.length - this.limit;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show more (${grouped(left)} left)`;
  }

  private order({ own, inclusive, functions }: Content): (a: Func, b: Func) => number {
    const sign = this.descending ? -1 : 1;
    const label = (func: Func) => functions[func.id].label;
    if (this.sort === "function") {
      return (a, b) => sign * (label(a) < label(b) ? -1 : label(a) > label(b) ? 1 : a.id - b.id);
    }
    const [first, second] = this.sort === "self" ? [own, inclusive] : [inclusive, own];
    return (a, b) => sign * (first[a.id] - first[b.id] || second[a.id] - second[b.id]) || a.id - b.id;
  }

  private row(func: Func): HTMLElement {
    const { view, own, inclusive } = this.content as Content;
    const name = element("button", { type: "button", title: "Find in the graph" }, ...breakable(visible(func.label)));
    name.addEventListener("click", () => this.chosen(func));
    const dot = element("i", { class: `dot ${func.kind}`, "aria-hidden": "true" });
    const cells = [own[func.id], inclusive[func.id]].flatMap((weight) => [
      element("td", { class: "number" }, view.is_time ? duration(weight) : grouped(weight)),
      this.share(weight, view.all.weight),
    ]);
    const heading = element("th", { scope: "row" }, element("div", { class: "name" }, dot, name));
    return element("tr", { "data-function": String(func.id) }, heading, ...cells);
  }

  private share(weight: number, all: number): HTMLElement {
    const bar = element("i", { class: "bar", "aria-hidden": "true" });
    const width = all > 0 ? Math.min(100, (100 * weight) / all) : 0;
    bar.style.width = `${width}%`;
    bar.hidden = width < 2;
    return element("td", { class: "number share" }, bar, element("span", {}, percent(weight, all)));
  }
}
