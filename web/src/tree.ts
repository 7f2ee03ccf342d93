// The call tree in preorder: node 0 is the root, a subtree is the range node..end[node].

/** Key of the root, which is no function. */
export const NO_KEY = -1;
export const INLINED = 1;
export const GUESSED = 2;

/** A tree of weighted nodes; node 0 is its root. Children of a lazy tree are made when asked for. */
export interface Tree {
  keyOf(node: number): number;
  totalOf(node: number): number;
  /** Weight to the left of the node. */
  startOf(node: number): number;
  depthOf(node: number): number;
  /** The root is its own parent. */
  parentOf(node: number): number;
  marksOf(node: number): number;
  /** Weight to the left of where the children end, once they are made. */
  childrenEnd(node: number): number;
  /** -1: none. */
  firstChild(node: number): number;
  /** -1: none. */
  nextSibling(node: number): number;
}

export class CallTree implements Tree {
  readonly size: number;
  readonly key: Int32Array;
  readonly parent: Int32Array;
  readonly end: Int32Array;
  readonly depth: Int32Array;
  readonly own: Float64Array;
  readonly total: Float64Array;
  readonly start: Float64Array;
  readonly marks: Uint8Array;

  /** From the payload's columns, which leave out the root. */
  constructor(keys: Float64Array, ups: Float64Array, own: Float64Array, marks: Float64Array) {
    const size = keys.length + 1;
    this.size = size;
    this.key = new Int32Array(size).fill(NO_KEY, 0, 1);
    this.parent = new Int32Array(size);
    this.end = new Int32Array(size);
    this.depth = new Int32Array(size);
    this.own = new Float64Array(size);
    this.total = new Float64Array(size);
    this.start = new Float64Array(size);
    this.marks = new Uint8Array(size);
    this.key.set(keys, 1);
    this.own.set(own, 1);
    this.marks.set(marks, 1);
    this.link(ups);
    this.sum();
    this.place();
  }

  private link(ups: Float64Array): void {
    const lastAt = [0];
    for (let node = 1; node < this.size; node++) {
      const depth = this.depth[node - 1] + 1 - ups[node - 1];
      this.depth[node] = depth;
      this.parent[node] = lastAt[depth - 1];
      lastAt[depth] = node;
    }
  }

  private sum(): void {
    const { own, total, end, parent } = this;
    total.set(own);
    for (let node = this.size - 1; node > 0; node--) {
      if (end[node] === 0) end[node] = node + 1;
      const up = parent[node];
      total[up] += total[node];
      if (end[up] < end[node]) end[up] = end[node];
    }
    if (end[0] === 0) end[0] = 1;
  }

  private place(): void {
    const { start, total, parent } = this;
    const next = new Float64Array(this.size);
    for (let node = 1; node < this.size; node++) {
      const up = parent[node];
      start[node] = next[node] = next[up];
      next[up] += total[node];
    }
  }

  keyOf(node: number): number {
    return this.key[node];
  }
  totalOf(node: number): number {
    return this.total[node];
  }
  startOf(node: number): number {
    return this.start[node];
  }
  depthOf(node: number): number {
    return this.depth[node];
  }
  parentOf(node: number): number {
    return this.parent[node];
  }
  marksOf(node: number): number {
    return this.marks[node];
  }
  childrenEnd(node: number): number {
    return this.start[node] + this.total[node] - this.own[node];
  }
  firstChild(node: number): number {
    return this.end[node] > node + 1 ? node + 1 : -1;
  }
  nextSibling(node: number): number {
    const next = this.end[node];
    return node !== 0 && next < this.end[this.parent[node]] ? next : -1;
  }

  /** Own and inclusive weight of every function; a function below itself is not counted again. */
  byKey(keys: number): { own: Float64Array; inclusive: Float64Array } {
    const own = new Float64Array(keys);
    const inclusive = new Float64Array(keys);
    const coveredUntil = new Int32Array(keys);
    for (let node = 1; node < this.size; node++) {
      const key = this.key[node];
      own[key] += this.own[node];
      if (node >= coveredUntil[key]) {
        inclusive[key] += this.total[node];
        coveredUntil[key] = this.end[node];
      }
    }
    return { own, inclusive };
  }

  /** Places that match, and the weight of samples with a match in their stack, each counted once. */
  find(matches: Uint8Array): { places: number; weight: number } {
    let places = 0;
    let weight = 0;
    let coveredUntil = 0;
    for (let node = 1; node < this.size; node++) {
      if (!matches[this.key[node]]) continue;
      places++;
      if (node >= coveredUntil) {
        weight += this.total[node];
        coveredUntil = this.end[node];
      }
    }
    return { places, weight };
  }
}

/** Keys from the root to `node`, without the root's. */
export function pathOf(tree: Tree, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at !== 0; at = tree.parentOf(at)) path.push(tree.keyOf(at));
  return path.reverse();
}

/** The node at the end of a path of keys, or the last one on the way that exists. */
export function follow(tree: Tree, path: readonly number[]): number {
  let node = 0;
  for (const key of path) {
    let child = tree.firstChild(node);
    while (child >= 0 && tree.keyOf(child) !== key) child = tree.nextSibling(child);
    if (child < 0) return node;
    node = child;
  }
  return node;
}
