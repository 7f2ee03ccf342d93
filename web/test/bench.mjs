// Measures a page in headless Chromium: node bench.mjs PAGE.html
// Each number is what the page itself measured, in ms; "open" counts from navigation to the first paint.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const last = (name) => `Math.round(performance.getEntriesByName(${JSON.stringify(name)}).at(-1).duration * 10) / 10`;
const settle = "new Promise((done) => setTimeout(done, 200))";
const steps = [
  { eval: "Math.round(performance.getEntriesByName('ready')[0].startTime)" },
  { eval: last("paint") },
  { eval: "document.querySelector('#graph').focus()" },
  { key: "ArrowDown" },
  { key: "ArrowDown" },
  { key: "Enter" },
  { eval: settle },
  { eval: last("render") },
  { key: "Home" },
  { eval: settle },
  { eval: last("render") },
  { key: "/" },
  { type: "handler_1.*" },
  { eval: "new Promise((done) => setTimeout(done, 2000))" },
  { eval: last("render") },
  { eval: "document.querySelector('#search-result').textContent" },
  { key: "Escape" },
  { key: "i" },
  { eval: settle },
  { eval: last("render") },
];
const driver = fileURLToPath(new URL("drive.mjs", import.meta.url));
const run = spawnSync("node", [driver, process.argv[2]], { input: JSON.stringify(steps), encoding: "utf8" });
if (run.status !== 0) throw new Error(run.stderr);
const [open, paint, , , zoom, , out, , search, found, , invert] = JSON.parse(run.stdout).results;
console.log({ open, paint, zoom, zoom_out: out, search, found, invert });
