// Escapes and numbers; the same as crates/report/src/text.rs writes.

// Characters without a shape of their own, or that change how their neighbours are shown; the last part is
// every code point that is no character.
const INVISIBLE =
  /[\p{Cc}\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Noncharacter_Code_Point}/gu;
const FOLDED = new RegExp(`[;\\\\]|${INVISIBLE.source}`, "gu");

function spell(c: string): string {
  const code = c.codePointAt(0) ?? 0;
  return code < 0x80 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
}

/** The text with every invisible character spelled out. */
export function visible(text: string): string {
  return text.replace(INVISIBLE, spell);
}

/** A frame of folded text. */
export function escapeFolded(name: string): string {
  return name.replace(FOLDED, (c) => (c === "\\" ? "\\\\" : spell(c)));
}

const ENTITIES: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Text as content or attribute of markup, invisible characters spelled out. */
export function markup(text: string): string {
  return visible(text).replace(/[&<>"']/g, (c) => ENTITIES[c]);
}

/** 14841 as 14,841. */
export function grouped(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Nanoseconds with three decimals of the largest unit that fits. */
export function duration(ns: number): string {
  if (ns < 1e3) return `${ns} ns`;
  const [unit, size] = ns < 1e6 ? ["us", 1e3] : ns < 1e9 ? ["ms", 1e6] : ["s", 1e9];
  const rest = Math.floor((ns % size) / (size / 1000));
  return `${grouped(Math.floor(ns / size))}.${String(rest).padStart(3, "0")} ${unit}`;
}

/** A weight in the unit of its view. */
export function weight(value: number, isTime: boolean): string {
  if (isTime) return duration(value);
  return value === 1 ? "1 sample" : `${grouped(value)} samples`;
}

/** A share in percent with two decimals; a dash when there is nothing to be a share of. */
export function percent(part: number, whole: number): string {
  if (whole === 0) return "\u2013";
  const hundredths = Math.floor((part / whole) * 10000 + 0.5);
  return `${Math.floor(hundredths / 100)}.${String(hundredths % 100).padStart(2, "0")} %`;
}

/** What a view's shares are shares of: "14,841 on-CPU samples", "12.300 s of off-CPU time". */
export function whole(view: { is_time: boolean; denominator: string; all: { weight: number } }): string {
  return view.is_time
    ? `${duration(view.all.weight)} of ${view.denominator}`
    : `${grouped(view.all.weight)} ${view.denominator}`;
}
