// Decodes the page's data; crates/report/src/payload.rs describes the format.
import { CallTree } from "./tree";

export type ViewName = "on_cpu" | "off_cpu" | "off_cpu_idle";
export type Kind =
  | "native"
  | "kernel"
  | "lua"
  | "lua_builtin"
  | "interpreter"
  | "jit"
  | "other_jit"
  | "marker";

export interface Amount {
  samples: number;
  weight: number;
}

export interface Ledger {
  taken: number;
  kept: number;
  lost: Record<string, number>;
  flagged: Record<string, number>;
}

interface ViewHead {
  view: ViewName;
  denominator: string;
  is_time: boolean;
  recorded: boolean;
  nodes: number;
  lines: number;
  all: Amount;
  preempted: Amount;
  runnable_ns: number;
  ledger: Ledger;
  /** Whether the ledger counts on-CPU and off-CPU samples together. */
  ledger_of_all: boolean;
  with_lua: Amount;
  without_lua: Record<string, Amount>;
  notes: string[];
}

interface Head {
  schema: string;
  tool: string;
  title: string;
  facts: [string, string][];
  started_unix_ms: number;
  warnings: string[];
  strings: string[];
  functions: {
    label: number[];
    kind: Kind[];
    module: number[];
    source: number[];
    first_line: number[];
    name_reason: number[];
  };
  views: ViewHead[];
}

/** A function as it is shown. Texts are raw: they are escaped where they are written. */
export interface Func {
  id: number;
  label: string;
  kind: Kind;
  module: string | null;
  source: string | null;
  firstLine: number;
  nameReason: string | null;
}

/** Weight of one line of a function. */
export interface LineWeight {
  line: number;
  own: number;
  inclusive: number;
}

/** One view with its tree. Weights are samples or nanoseconds. */
export interface View extends ViewHead {
  tree: CallTree;
  linesOf: Map<number, LineWeight[]>;
}

export interface Model {
  title: string;
  tool: string;
  facts: [string, string][];
  startedUnixMs: number;
  warnings: string[];
  functions: Func[];
  views: View[];
}

const SCHEMA = "throughline.flame/1";

export async function decode(base64: string): Promise<Model> {
  const bytes = atob(base64);
  const packed = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; i++) packed[i] = bytes.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(raw.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + length))) as Head;
  if (head.schema !== SCHEMA) throw new Error(`unknown data format ${head.schema}`);
  const reader = new Columns(raw, 4 + length);
  return {
    title: head.title,
    tool: head.tool,
    facts: head.facts,
    startedUnixMs: head.started_unix_ms,
    warnings: head.warnings,
    functions: functions(head),
    views: head.views.map((view) => readView(view, reader)),
  };
}

function functions(head: Head): Func[] {
  const { label, kind, module, source, first_line, name_reason } = head.functions;
  const text = (at: number) => (at < 0 ? null : head.strings[at]);
  return label.map((at, id) => ({
    id,
    label: head.strings[at],
    kind: kind[id],
    module: text(module[id]),
    source: text(source[id]),
    firstLine: first_line[id],
    nameReason: text(name_reason[id]),
  }));
}

function readView(head: ViewHead, reader: Columns): View {
  const keys = reader.column(head.nodes);
  const ups = reader.column(head.nodes);
  const own = reader.column(head.nodes);
  const marks = reader.column(head.nodes);
  const tree = new CallTree(keys, ups, own, marks);
  const [of, line, lineOwn, inclusive] = [0, 1, 2, 3].map(() => reader.column(head.lines));
  const linesOf = new Map<number, LineWeight[]>();
  for (let i = 0; i < head.lines; i++) {
    const row = { line: line[i], own: lineOwn[i], inclusive: inclusive[i] };
    const rows = linesOf.get(of[i]);
    if (rows) rows.push(row);
    else linesOf.set(of[i], [row]);
  }
  return { ...head, tree, linesOf };
}

/** Reads columns of unsigned LEB128 numbers. */
class Columns {
  constructor(
    private readonly raw: Uint8Array,
    private at: number,
  ) {}

  column(length: number): Float64Array {
    const out = new Float64Array(length);
    const raw = this.raw;
    let at = this.at;
    for (let i = 0; i < length; i++) {
      let byte = raw[at++];
      let value = byte & 0x7f;
      // Multiplication, for weights beyond 32 bits.
      for (let scale = 128; byte & 0x80; scale *= 128) {
        byte = raw[at++];
        value += (byte & 0x7f) * scale;
      }
      out[i] = value;
    }
    this.at = at;
    return out;
  }
}
