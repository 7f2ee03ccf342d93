// Which boxes of a tree are wide enough to be seen, and where they go; the arithmetic is that of
// crates/report/src/boxes.rs, in the same order, so that both make the same SVG.
import type { Tree } from "./tree";

/** Boxes narrower than this are not drawn, and nothing below them is looked at. */
const NARROWEST_PX = 0.5;

/** Called for each box: edges in tenths of a pixel. */
export type Emit = (node: number, row: number, left: number, right: number) => void;

/**
 * Emits the visible boxes in rows `rowFrom..rowTo`, with `zoom` over the full width and its callers
 * above it.
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
    if (row >= rowFrom && row < rowTo) emit(at, row, 0, full);
  }
  const origin = tree.startOf(zoom);
  const whole = tree.totalOf(zoom);
  if (whole <= 0) return;
  let node = zoom;
  while (node >= 0) {
    const total = tree.totalOf(node);
    let next = -1;
    if ((total / whole) * width >= NARROWEST_PX) {
      const row = tree.depthOf(node);
      if (row >= rowFrom && row < rowTo) {
        const start = tree.startOf(node) - origin;
        emit(
          node,
          row,
          Math.floor((start / whole) * width * 10),
          Math.floor(((start + total) / whole) * width * 10),
        );
      }
      if (row + 1 < rowTo) next = tree.firstChild(node);
    }
    node = next >= 0 ? next : after(tree, node, zoom);
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
