// Which boxes of a tree are wide enough to be seen, and where they go; the arithmetic is that of
// crates/report/src/boxes.rs, in the same order, so that both make the same SVG.
import type { Tree } from "./tree";

/** Boxes narrower than this are not drawn, and nothing below them is looked at. */
const NARROWEST_PX = 0.5;

/** Node of a box that stands for siblings too narrow to be drawn. */
export const REST = -1;

/** Called for each box: edges in tenths of a pixel, and the weight that it stands for. */
export type Emit = (node: number, row: number, left: number, right: number, weight: number) => void;

/**
 * Emits the visible boxes in rows `rowFrom..rowTo`, with `zoom` over the full width and its callers
 * above it. Siblings come by falling weight, so those too narrow to draw are neighbours: one box of node
 * `REST` stands for them.
 */
export function layout(
  tree: Tree,
  zoom: number,
  width: number,
  emit: Emit,
  rowFrom = 0,
  rowTo = Infinity,
): void {
  const full = Math.floor(width * 10);
  const callers: number[] = [];
  for (let at = zoom; at !== 0; ) {
    at = tree.parentOf(at);
    callers.push(at);
  }
  for (const at of callers.reverse()) {
    const row = tree.depthOf(at);
    if (row >= rowFrom && row < rowTo) emit(at, row, 0, full, tree.totalOf(at));
  }
  const origin = tree.startOf(zoom);
  const whole = tree.totalOf(zoom);
  if (whole <= 0) return;
  let node = zoom;
  while (node >= 0) {
    const wide = (tree.totalOf(node) / whole) * width >= NARROWEST_PX;
    const row = tree.depthOf(node);
    const start = tree.startOf(node);
    const weight = wide ? tree.totalOf(node) : tree.childrenEnd(tree.parentOf(node)) - start;
    const drawn = wide || (weight / whole) * width >= NARROWEST_PX;
    if (drawn && row >= rowFrom && row < rowTo) {
      const left = Math.floor(((start - origin) / whole) * width * 10);
      const right = Math.floor(((start - origin + weight) / whole) * width * 10);
      emit(wide ? node : REST, row, left, right, weight);
    }
    const down = wide && row + 1 < rowTo ? tree.firstChild(node) : -1;
    node = down >= 0 ? down : after(tree, wide ? node : tree.parentOf(node), zoom);
  }
}

/** The node after a subtree in preorder, within `zoom`; -1 at the end. */
function after(tree: Tree, node: number, zoom: number): number {
  for (let at = node; at !== zoom; at = tree.parentOf(at)) {
    const next = tree.nextSibling(at);
    if (next >= 0) return next;
  }
  return -1;
}

/** Number of rows that the visible boxes take. */
export function visibleRows(tree: Tree, zoom: number, width: number): number {
  let rows = 0;
  layout(tree, zoom, width, (_node, row) => {
    if (row >= rows) rows = row + 1;
  });
  return rows;
}
