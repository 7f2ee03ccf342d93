// The visible view as an SVG file: the same bytes as crates/report/src/svg.rs makes.
import { REST, layout } from "./layout";
import { LIGHT, REST_LIGHT, ROOT_LIGHT } from "./palette";
import type { Func, View } from "./payload";
import { grouped, markup, percent, visible, weight, whole } from "./text";
import { GUESSED, INLINED, type Tree } from "./tree";

const WIDTH = 1200;
const MARGIN = 10;
const ROW = 17;
const BOX = 16;
const HEADER = 62;
const LINE = 16;
const CHARACTER = 67;
const PADDING = 60;

/** What the user looks for, and what was found. */
export interface Search {
  text: string;
  matches: Uint8Array;
  places: number;
  weight: number;
}

/** What is on the screen. */
export interface Shown {
  title: string;
  functions: readonly Func[];
  view: View;
  tree: Tree;
  inverted: boolean;
  zoom: number;
  search: Search | null;
}

export function searchText(search: Search, view: View): string {
  const places = `${grouped(search.places)} ${search.places === 1 ? "place" : "places"}`;
  return `${places}, ${weight(search.weight, view.is_time)}, ${percent(search.weight, view.all.weight)}`;
}

/** Signs before a name, and words in its title. */
export function mark(marks: number): [string, string] {
  const inlined = (marks & INLINED) !== 0;
  const guessed = (marks & GUESSED) !== 0;
  if (inlined && guessed) return ["\u21b3? ", ", inlined, guessed"];
  if (inlined) return ["\u21b3 ", ", inlined"];
  return guessed ? ["? ", ", guessed"] : ["", ""];
}

/** As much of a name as fits; null when that is too little to be read. */
export function fitting(name: string, room: number): string | null {
  if (room < 3) return null;
  if (name.length <= room) return name;
  const characters = [...name];
  return characters.length <= room ? name : `${characters.slice(0, room - 1).join("")}\u2026`;
}

export function svg(shown: Shown): string {
  const { view } = shown;
  const parts: string[] = [];
  let rows = 0;
  layout(shown.tree, shown.zoom, WIDTH, (node, row, left, right, total) => {
    rows = Math.max(rows, row + 1);
    parts.push(box(shown, { node, row, left, right, total }));
  });
  const width = WIDTH + 2 * MARGIN;
  const foot = HEADER + rows * ROW + LINE;
  const height = foot + view.notes.length * LINE;
  const search = shown.search
    ? `Search ${visible(shown.search.text)}: ${searchText(shown.search, view)}`
    : "";
  const head = `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11" fill="#1b1f24">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="${MARGIN}" y="20" font-size="15" font-weight="bold">${markup(shown.title)}</text>
<text x="${MARGIN}" y="37">${markup(whole(view) + (shown.inverted ? ", inverted" : ""))}</text>
<text x="${MARGIN}" y="53">${markup(search)}</text>
`;
  const notes = view.notes.map(
    (note, at) => `<text x="${MARGIN}" y="${foot + at * LINE}">${markup(note)}</text>\n`,
  );
  return `${head}${parts.join("")}${notes.join("")}</svg>\n`;
}

interface Box {
  node: number;
  row: number;
  /** Edges, tenths of a pixel. */
  left: number;
  right: number;
  total: number;
}

function box(shown: Shown, { node, row, left, right, total }: Box): string {
  const { view, tree, search } = shown;
  const amount = `${weight(total, view.is_time)}, ${percent(total, view.all.weight)} of ${view.denominator}`;
  let [name, fill, title, strength] = ["all", ROOT_LIGHT, `all: ${amount}`, ""];
  if (node === REST) {
    [name, fill, title] = ["", REST_LIGHT, `frames too narrow to draw: ${amount}`];
  } else if (node !== 0) {
    const func = shown.functions[tree.keyOf(node)];
    const label = visible(func.label);
    const [sign, words] = mark(tree.marksOf(node));
    name = sign + label;
    fill = LIGHT[func.kind][func.id % 3];
    title = `${label} (${func.kind}${words}): ${amount}`;
    if (search) {
      strength = search.matches[func.id] ? ' stroke="#111111" stroke-width="1.5"' : ' opacity="0.4"';
    }
  }
  const x = left + MARGIN * 10;
  const y = HEADER + row * ROW;
  const width = Math.max(right - left - 5, 3);
  const text = name && fitting(name, Math.floor(Math.max(width - PADDING, 0) / CHARACTER));
  const written =
    !text ? "" : `<text x="${tenths(x + PADDING / 2)}" y="${y + 12}">${markup(text)}</text>`;
  return `<g><title>${markup(title)}</title><rect x="${tenths(x)}" y="${y}" width="${tenths(width)}" height="${BOX}" fill="${fill}"${strength}/>${written}</g>\n`;
}

function tenths(value: number): string {
  return `${Math.floor(value / 10)}.${value % 10}`;
}
