// Bundles the page's script and style into dist/, which is committed so that a build of the Rust
// workspace needs no Node. Both files open with a digest of their sources; crates/report/tests/bundle.rs
// computes it again. `node build.mjs FOLDER` builds into another folder.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const sha256 = (data) => createHash("sha256").update(data).digest("hex");

const out = process.argv[2] ?? here("dist");

const sources = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"].concat(
  readdirSync(here("src")).map((name) => `src/${name}`),
);
const digest = sha256(
  sources.sort().map((name) => `${name} ${sha256(readFileSync(here(name)))}\n`).join(""),
);

const result = await build({
  absWorkingDir: here("."),
  entryPoints: { flame: "src/main.ts", style: "src/flame.css" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome103", "firefox113", "safari16.4"],
  legalComments: "none",
  write: false,
});
for (const { path, text } of result.outputFiles) {
  // Both stand inside markup, where these would end the element.
  if (/<\/(script|style)|<!--/i.test(text)) throw new Error(`${path} would break out of its element`);
  const name = path.endsWith(".css") ? "flame.css" : "flame.js";
  writeFileSync(join(out, name), `/* sources sha256 ${digest} */\n${text}`);
}
