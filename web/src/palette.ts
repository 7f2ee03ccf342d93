// Colours by kind of code: tints of the Okabe-Ito palette, which people with any colour vision can tell
// apart. Lightness differs too, so that print in grey keeps some of it.
import type { Kind } from "./payload";

type Rgb = readonly [number, number, number];

/** Every kind in the legend's order. */
export const KINDS: readonly { kind: Kind; name: string; light: Rgb; dark: Rgb }[] = [
  { kind: "lua", name: "Lua", light: [0x7b, 0xbf, 0xec], dark: [0x2f, 0x6f, 0x9e] },
  { kind: "lua_builtin", name: "Lua library", light: [0xae, 0xd8, 0xf3], dark: [0x4a, 0x8b, 0xb5] },
  { kind: "interpreter", name: "Interpreter", light: [0x9d, 0xb0, 0xe0], dark: [0x4c, 0x58, 0x96] },
  { kind: "jit", name: "JIT trace", light: [0x62, 0xbd, 0x9c], dark: [0x1c, 0x75, 0x5a] },
  { kind: "other_jit", name: "Other JIT", light: [0xef, 0xe5, 0x7d], dark: [0x85, 0x7c, 0x1f] },
  { kind: "native", name: "Native", light: [0xf3, 0xc8, 0x83], dark: [0x91, 0x62, 0x22] },
  { kind: "kernel", name: "Kernel", light: [0xdd, 0xa6, 0xc4], dark: [0x87, 0x4a, 0x6d] },
  { kind: "marker", name: "Not code", light: [0xc9, 0xcc, 0xd1], dark: [0x55, 0x5b, 0x66] },
];

export const ROOT_LIGHT = "#e3e6ea";
export const ROOT_DARK = "#343b46";
/** Siblings too narrow to be drawn. */
export const REST_LIGHT = "#eceef1";
export const REST_DARK = "#262c35";

function hex(rgb: Rgb, strength: number): string {
  return `#${rgb.map((part) => Math.floor((part * strength) / 100).toString(16).padStart(2, "0")).join("")}`;
}

/** Three shades of each kind's tint, so that neighbours differ. */
function shades(theme: "light" | "dark"): Record<Kind, string[]> {
  const table = KINDS.map(({ kind, [theme]: rgb }) => [kind, [100, 96, 92].map((s) => hex(rgb, s))]);
  return Object.fromEntries(table) as Record<Kind, string[]>;
}

export const LIGHT = shades("light");
export const DARK = shades("dark");

export function kindName(kind: Kind): string {
  return KINDS.find((row) => row.kind === kind)?.name ?? kind;
}
