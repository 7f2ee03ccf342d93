// Drives a page in headless Chromium over the DevTools protocol's pipe, with what Node has built in.
//
//   node drive.mjs PAGE.html < steps.json > result.json
//
// A step is one of
//   {"eval": "expression"}            its value (awaited) goes into the results
//   {"until": "expression"}           waits until it is true, 20 s at most; its value goes into the results
//   {"key": "Enter"}                  presses a key
//   {"type": "text"}                  types into what has the focus
//   {"click": [x, y]}, {"move": [x, y]}
//   {"size": [width, height]}, {"scheme": "dark"}, {"screenshot": "file.png"}
// The result is {"results": [...], "requests": [urls], "dialogs": n, "errors": [texts]}.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const LIMIT_MS = 20_000;
const KEYS = {
  Enter: [13, "\r"],
  Escape: [27],
  Backspace: [8],
  Tab: [9],
  Home: [36],
  ArrowLeft: [37],
  ArrowUp: [38],
  ArrowRight: [39],
  ArrowDown: [40],
};

class Browser {
  #next = 1;
  #waiting = new Map();
  #rest = "";
  session;
  seen = { requests: [], dialogs: 0, errors: [] };

  constructor() {
    this.home = mkdtempSync(join(tmpdir(), "throughline-page-"));
    const flags = [
      "--headless=new",
      "--no-sandbox",
      "--remote-debugging-pipe",
      "--no-first-run",
      "--disable-gpu",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-dev-shm-usage",
      "--force-device-scale-factor=1",
      "--hide-scrollbars",
      `--user-data-dir=${this.home}`,
      "about:blank",
    ];
    const program = process.env["CHROMIUM"] ?? "chromium";
    this.child = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.child.on("error", (error) => fail(`cannot run ${program}: ${error.message}`));
    this.child.on("exit", () => {
      for (const { reject } of this.#waiting.values()) reject(new Error("the browser ended"));
    });
    this.child.stdio[4].on("data", (chunk) => this.#receive(chunk));
  }

  #receive(chunk) {
    const parts = (this.#rest + chunk).split("\0");
    this.#rest = parts.pop();
    for (const part of parts) this.#message(JSON.parse(part));
  }

  #message(message) {
    const waiting = this.#waiting.get(message.id);
    if (waiting) {
      this.#waiting.delete(message.id);
      if (message.error) waiting.reject(new Error(message.error.message));
      else waiting.resolve(message.result);
      return;
    }
    const { method, params } = message;
    if (method === "Network.requestWillBeSent") this.seen.requests.push(params.request.url);
    if (method === "Runtime.exceptionThrown") {
      this.seen.errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    }
    if (method === "Log.entryAdded") this.seen.errors.push(params.entry.text);
    if (method === "Page.javascriptDialogOpening") {
      this.seen.dialogs++;
      void this.call("Page.handleJavaScriptDialog", { accept: false });
    }
  }

  call(method, params = {}) {
    const id = this.#next++;
    const text = JSON.stringify({ id, method, params, ...(this.session && { sessionId: this.session }) });
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.child.stdio[3].write(`${text}\0`);
    });
  }

  async open(url) {
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    this.session = sessionId;
    for (const domain of ["Page", "Runtime", "Network", "Log"]) await this.call(`${domain}.enable`);
    await this.size(1400, 900);
    await this.call("Page.navigate", { url });
  }

  size(width, height) {
    return this.call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  }

  async evaluate(expression) {
    const answer = await this.call("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (answer.exceptionDetails) {
      throw new Error(`${expression}: ${answer.exceptionDetails.exception?.description}`);
    }
    return answer.result.value ?? null;
  }

  async until(expression) {
    const end = Date.now() + LIMIT_MS;
    for (;;) {
      const value = await this.evaluate(expression);
      if (value) return value;
      if (Date.now() > end) throw new Error(`never true: ${expression}`);
      await new Promise((done) => setTimeout(done, 20));
    }
  }

  async key(key) {
    const [code, text = key.length === 1 ? key : undefined] = KEYS[key] ?? [key.toUpperCase().charCodeAt(0)];
    const common = { key, windowsVirtualKeyCode: code };
    await this.call("Input.dispatchKeyEvent", { type: "keyDown", ...common, ...(text && { text }) });
    await this.call("Input.dispatchKeyEvent", { type: "keyUp", ...common });
  }

  async click([x, y]) {
    const common = { x, y, button: "left", clickCount: 1 };
    await this.call("Input.dispatchMouseEvent", { type: "mousePressed", ...common });
    await this.call("Input.dispatchMouseEvent", { type: "mouseReleased", ...common });
  }

  async step(step) {
    const [[what, value]] = Object.entries(step);
    switch (what) {
      case "eval":
        return [await this.evaluate(value)];
      case "until":
        return [await this.until(value)];
      case "key":
        await this.key(value);
        return [];
      case "type":
        await this.call("Input.insertText", { text: value });
        return [];
      case "click":
        await this.click(value);
        return [];
      case "move":
        await this.call("Input.dispatchMouseEvent", { type: "mouseMoved", x: value[0], y: value[1] });
        return [];
      case "size":
        await this.size(...value);
        return [];
      case "scheme":
        await this.call("Emulation.setEmulatedMedia", {
          features: [{ name: "prefers-color-scheme", value }],
        });
        return [];
      case "screenshot": {
        await this.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
        const { data } = await this.call("Page.captureScreenshot", { format: "png" });
        writeFileSync(value, Buffer.from(data, "base64"));
        return [];
      }
      default:
        throw new Error(`unknown step ${what}`);
    }
  }

  async close() {
    this.session = undefined;
    const ended = new Promise((done) => this.child.once("exit", done));
    await this.call("Browser.close").catch(() => {});
    await ended;
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

function fail(text) {
  process.stderr.write(`${text}\n`);
  process.exit(1);
}

const browser = new Browser();
let failure = null;
try {
  await browser.open(pathToFileURL(resolve(process.argv[2])).href);
  await browser.until("document.querySelector('#app[data-ready], #failure') !== null");
  const results = [];
  for (const step of JSON.parse(readFileSync(0, "utf8"))) results.push(...(await browser.step(step)));
  process.stdout.write(JSON.stringify({ results, ...browser.seen }));
} catch (error) {
  failure = `${error.message}\n${browser.seen.errors.join("\n")}`;
}
await browser.close();
if (failure !== null) fail(failure);
