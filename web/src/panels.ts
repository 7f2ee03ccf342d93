// What stands around the graph: capture facts, warnings, ledger, legend, details, help.
import { element } from "./dom";
import { KINDS, kindName } from "./palette";
import type { Amount, Func, LineWeight, Model, View } from "./payload";
import { duration, grouped, percent, visible, weight, whole } from "./text";

/** Lines of a function listed in its details. */
const LINES = 8;

/** A reason code of the ledger as words. */
function words(code: string): string {
  return visible(code.replaceAll("_", " "));
}

export function captureFacts(model: Model): HTMLElement {
  const list = element("dl");
  const facts = [...model.facts];
  if (model.startedUnixMs > 0) {
    const started = new Date(model.startedUnixMs);
    // A hostile time may be beyond what a date can be.
    if (!Number.isNaN(started.getTime())) facts.push(["Started", started.toISOString()]);
  }
  facts.push(["Page by", `throughline ${model.tool}`]);
  for (const [name, text] of facts) {
    list.append(element("dt", {}, name), element("dd", {}, visible(text)));
  }
  const short = ["Duration", "Rate"].flatMap((wanted) => {
    const text = facts.find(([name]) => name === wanted)?.[1];
    return text === undefined ? [] : [text.replace(/ of each.*/, "")];
  });
  const summary = element("summary", {}, ["Capture", ...short].join(" · "));
  return element("details", { id: "capture" }, summary, list);
}

export function warnings(model: Model): HTMLElement {
  const list = element("ul", { id: "warnings", "aria-label": "Warnings" });
  list.append(...model.warnings.map((text) => element("li", {}, visible(text))));
  list.hidden = model.warnings.length === 0;
  return list;
}

export function ledger(view: View): Node[] {
  const { ledger, is_time } = view;
  const lost = Object.values(ledger.lost).reduce((sum, count) => sum + count, 0);
  const counts = (map: Record<string, number>) =>
    Object.entries(map).map(([reason, count]) => chip(words(reason), grouped(count)));
  const amounts = (map: Record<string, Amount>) =>
    Object.entries(map).map(([reason, amount]) =>
      chip(words(reason), is_time ? duration(amount.weight) : grouped(amount.weight)),
    );
  const sum = `${grouped(ledger.taken)} taken = ${grouped(ledger.kept)} kept + ${grouped(lost)} lost`;
  const groups = [group(view.ledger_of_all ? "Ledger, on- and off-CPU together" : "Ledger", sum, counts(ledger.lost))];
  if (Object.keys(ledger.flagged).length > 0) {
    groups.push(group("Flagged among the kept", "", counts(ledger.flagged)));
  }
  if (Object.keys(view.without_lua).length > 0) {
    groups.push(group("Without Lua context", "", amounts(view.without_lua)));
  }
  if (is_time && view.all.samples > 0) {
    const waiting = [chip("in the run queue", duration(view.runnable_ns))];
    if (view.preempted.samples > 0) waiting.push(chip("preempted", duration(view.preempted.weight)));
    groups.push(group("Of this time", "", waiting));
  }
  return groups;
}

function group(name: string, text: string, chips: Node[]): HTMLElement {
  const parts: (Node | string)[] = [element("b", {}, name)];
  if (text) parts.push(element("span", { class: "sum" }, text));
  return element("div", { class: "group" }, ...parts, ...chips);
}

function chip(name: string, value: string): HTMLElement {
  return element("span", { class: "chip" }, `${name} `, element("b", {}, value));
}

/** Kinds of code with the share of samples whose innermost frame is of that kind. */
export function legend(
  view: View,
  functions: readonly Func[],
  own: Float64Array,
  inclusive: Float64Array,
): Node[] {
  const sums = new Map<string, number>();
  for (const { id, kind } of functions) {
    if (inclusive[id] > 0) sums.set(kind, (sums.get(kind) ?? 0) + own[id]);
  }
  const shown = KINDS.filter(({ kind }) => sums.has(kind));
  return shown.map(({ kind, name }) =>
    element(
      "span",
      { class: "key", title: `${name}: share of samples whose innermost frame is of this kind` },
      element("i", { class: `dot ${kind}`, "aria-hidden": "true" }),
      `${name} `,
      element("b", {}, percent(sums.get(kind) ?? 0, view.all.weight)),
    ),
  );
}

/** One frame at one place. */
export interface Details {
  view: View;
  /** null: the root. */
  func: Func | null;
  marks: string;
  total: number;
  /** Weight of samples that end at this place; null in an inverted tree. */
  self: number | null;
  functionOwn: number;
  functionInclusive: number;
  lines: readonly LineWeight[];
}

/** Name and text of what is known of a frame, without the name itself. */
export function detailRows(details: Details): [string, string][] {
  const { view, func } = details;
  const amount = (value: number) =>
    `${weight(value, view.is_time)}, ${percent(value, view.all.weight)}`;
  const rows: [string, string][] = [["Here", `${amount(details.total)} of ${whole(view)}`]];
  if (details.self !== null && func) rows.push(["Self here", amount(details.self)]);
  if (!func) return rows;
  rows.push(["Kind", kindName(func.kind) + details.marks]);
  if (func.module !== null) rows.push(["Module", visible(func.module)]);
  if (func.source !== null) {
    const line = func.firstLine > 0 ? `:${func.firstLine}` : "";
    rows.push(["Source", visible(func.source) + line]);
  }
  if (func.nameReason !== null) rows.push(["No name", words(func.nameReason)]);
  rows.push(["Function, self", amount(details.functionOwn)]);
  rows.push(["Function, inclusive", amount(details.functionInclusive)]);
  return rows;
}

export function detailPanel(details: Details): Node[] {
  const name = details.func ? visible(details.func.label) : "all";
  const list = element("dl");
  for (const [title, text] of detailRows(details)) {
    list.append(element("dt", {}, title), element("dd", {}, text));
  }
  const lines = details.lines.slice(0, LINES).map(({ line, inclusive }) => {
    const share = percent(inclusive, details.functionInclusive);
    return element("span", { class: "chip" }, `line ${line} `, element("b", {}, share));
  });
  if (lines.length > 0) {
    const more = details.lines.length - lines.length;
    const rest = more > 0 ? [`and ${grouped(more)} more`] : [];
    list.append(element("dt", {}, "Lines"), element("dd", {}, ...lines, ...rest));
  }
  return [element("h2", {}, name), list];
}

const KEYS: readonly [string, string][] = [
  ["\u2190 \u2191 \u2192 \u2193", "move between frames"],
  ["Enter, click", "zoom to the frame"],
  ["Escape, Backspace", "go back one zoom"],
  ["Home", "zoom out to all"],
  ["/", "search by regular expression"],
  ["n, N", "next and previous match"],
  ["i", "invert: innermost frames first"],
  ["1, 2, 3", "on-CPU, off-CPU, idle"],
  ["?", "this list"],
];

export function help(): HTMLDialogElement {
  const list = element("dl");
  for (const [keys, text] of KEYS) list.append(element("dt", {}, keys), element("dd", {}, text));
  const close = element("button", { type: "submit" }, "Close");
  return element(
    "dialog",
    { id: "help", "aria-labelledby": "help-title" },
    element("h2", { id: "help-title" }, "Keys"),
    list,
    element(
      "p",
      {},
      "A search without a capital letter ignores case. Its sum counts each sample once, also where matches are nested. \u21b3 marks a function that the compiler inlined, ? a frame inferred by a rule that can be wrong.",
    ),
    element("form", { method: "dialog" }, close),
  );
}
