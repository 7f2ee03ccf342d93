// The inverted tree: innermost frames first, callers below, made as far as it is looked at, because the
// whole inverse of a deep tree may be quadratic.
import { CallTree, NO_KEY, type Tree } from "./tree";

interface Node {
  key: number;
  parent: number;
  depth: number;
  total: number;
  start: number;
  marks: number;
  /** Range of the children once they are made; -1 before. */
  first: number;
  end: number;
  /** Call tree nodes at the end of this path, and the weight each brought along. */
  members: number[];
  weights: number[];
}

function newNode(key: number, parent: number, depth: number): Node {
  return { key, parent, depth, total: 0, start: 0, marks: 0, first: -1, end: -1, members: [], weights: [] };
}

export class Inverted implements Tree {
  private readonly nodes: Node[];

  constructor(private readonly tree: CallTree) {
    const root = newNode(NO_KEY, 0, 0);
    root.total = tree.total[0];
    for (let node = 1; node < tree.size; node++) {
      if (tree.own[node] > 0) {
        root.members.push(node);
        root.weights.push(tree.own[node]);
      }
    }
    this.nodes = [root];
  }

  keyOf(node: number): number {
    return this.nodes[node].key;
  }
  totalOf(node: number): number {
    return this.nodes[node].total;
  }
  startOf(node: number): number {
    return this.nodes[node].start;
  }
  depthOf(node: number): number {
    return this.nodes[node].depth;
  }
  parentOf(node: number): number {
    return this.nodes[node].parent;
  }
  marksOf(node: number): number {
    return this.nodes[node].marks;
  }
  childrenEnd(node: number): number {
    const { end } = this.nodes[node];
    const last = this.nodes[end - 1];
    return last.start + last.total;
  }
  firstChild(node: number): number {
    if (this.nodes[node].first < 0) this.expand(node);
    const { first, end } = this.nodes[node];
    return first < end ? first : -1;
  }
  nextSibling(node: number): number {
    return node !== 0 && node + 1 < this.nodes[this.nodes[node].parent].end ? node + 1 : -1;
  }

  private expand(node: number): void {
    const from = this.nodes[node];
    const { key, parent, marks } = this.tree;
    const groups = new Map<number, Node>();
    for (let i = 0; i < from.members.length; i++) {
      // The root's members are the innermost frames themselves; below, each node's callers come.
      const at = node === 0 ? from.members[i] : parent[from.members[i]];
      if (at === 0) continue;
      let group = groups.get(key[at]);
      if (!group) groups.set(key[at], (group = newNode(key[at], node, from.depth + 1)));
      group.total += from.weights[i];
      group.marks |= marks[at];
      group.members.push(at);
      group.weights.push(from.weights[i]);
    }
    from.members = from.weights = [];
    from.first = this.nodes.length;
    let start = from.start;
    for (const group of [...groups.values()].sort((a, b) => b.total - a.total || a.key - b.key)) {
      group.start = start;
      start += group.total;
      this.nodes.push(group);
    }
    from.end = this.nodes.length;
  }
}
