// The visible view as folded text: the same bytes as crates/report/src/folded.rs makes.
import type { Shown } from "./svg";
import { escapeFolded } from "./text";
import { pathOf } from "./tree";

/** Stacks through the zoomed frame; with a search only those in which it matches. */
export function folded(shown: Shown): string {
  const call = shown.view.tree;
  const frames = shown.functions.map((func) => escapeFolded(func.label));
  const zoom = pathOf(shown.tree, shown.zoom);
  const sums = new Map<string, number>();
  for (let node = 1; node < call.size; node++) {
    const own = call.own[node];
    if (own === 0) continue;
    const path = pathOf(call, node);
    if (shown.inverted) path.reverse();
    if (!zoom.every((key, at) => path[at] === key)) continue;
    if (shown.search && !path.some((key) => shown.search?.matches[key])) continue;
    const stack = path.map((key) => frames[key]).join(";");
    sums.set(stack, (sums.get(stack) ?? 0) + own);
  }
  return [...sums]
    .sort(([a], [b]) => compareByCodePoint(a, b))
    .map(([stack, weight]) => `${stack} ${weight}\n`)
    .join("");
}

/** The order of UTF-8 bytes, which differs from that of UTF-16 units beyond U+D7FF. */
function compareByCodePoint(a: string, b: string): number {
  const end = Math.min(a.length, b.length);
  for (let i = 0; i < end; i++) {
    if (a.charCodeAt(i) === b.charCodeAt(i)) continue;
    // Inside a pair the lead units are equal, so comparing what starts here is enough.
    return (a.codePointAt(i) ?? 0) - (b.codePointAt(i) ?? 0);
  }
  return a.length - b.length;
}
