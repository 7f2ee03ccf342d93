// The graph: a canvas of the viewport's size that stays in place while a spacer scrolls, so that its memory
// does not depend on how deep the stacks are.
import { element } from "./dom";
import { REST, layout, visibleRows } from "./layout";
import { DARK, LIGHT, REST_DARK, REST_LIGHT, ROOT_DARK, ROOT_LIGHT } from "./palette";
import { fitting, mark, type Shown } from "./svg";
import { visible, whole } from "./text";

/** Height of a row and of the box in it, px. */
const ROW = 20;
const BOX = 19;
const FONT = '12px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const PADDING = 5;

export interface Place {
  /** A node, or `REST`. */
  node: number;
  row: number;
  left: number;
  right: number;
  weight: number;
}

export interface Listener {
  zoom(node: number): void;
  hover(place: Place | null, event: MouseEvent | null): void;
}

export class Graph {
  readonly scroller: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  private readonly spacer: HTMLElement;
  private readonly hoverMark = element("div", { class: "mark hover", "aria-hidden": "true" });
  private readonly selectMark = element("div", { class: "mark selected", "aria-hidden": "true" });
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");
  private shown: Shown | null = null;
  private places: Place[] = [];
  private rows = 0;
  private selected = 0;
  private due = false;

  constructor(private readonly listener: Listener) {
    this.canvas = element("canvas", {
      id: "graph",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "flame graph",
      "aria-label":
        "Flame graph. Arrow keys move between frames, Enter zooms, Escape goes back. The table of functions has the same numbers.",
      "aria-describedby": "status",
    });
    this.spacer = element("div", { class: "spacer" }, this.canvas, this.hoverMark, this.selectMark);
    this.scroller = element("div", { class: "scroller", id: "scroller" }, this.spacer);
    this.scroller.addEventListener("scroll", () => this.later());
    this.dark.addEventListener("change", () => this.later());
    new ResizeObserver(() => this.resized()).observe(this.scroller);
    this.canvas.addEventListener("mousemove", (event) => this.moved(event));
    this.canvas.addEventListener("mouseleave", () => this.left());
    this.canvas.addEventListener("click", (event) => {
      const place = this.at(event);
      if (place && place.node !== REST) this.listener.zoom(place.node);
    });
  }

  /** Shows a view; `top`: scroll to the zoomed frame. */
  show(shown: Shown, selected: number, top: boolean): void {
    this.shown = shown;
    this.selected = selected;
    this.measure();
    if (top) {
      const row = shown.tree.depthOf(shown.zoom);
      this.scroller.scrollTop = Math.max(0, row - 2) * ROW;
    }
    this.paint();
  }

  /** Marks a frame and brings its row into sight. */
  select(node: number): void {
    if (!this.shown) return;
    this.selected = node;
    const y = this.shown.tree.depthOf(node) * ROW;
    const { scrollTop, clientHeight } = this.scroller;
    if (y < scrollTop) this.scroller.scrollTop = y;
    else if (y + ROW > scrollTop + clientHeight) this.scroller.scrollTop = y + ROW - clientHeight;
    this.paint();
  }

  private measure(): void {
    if (!this.shown) return;
    this.rows = visibleRows(this.shown.tree, this.shown.zoom, this.width());
    this.spacer.style.height = `${this.rows * ROW + 1}px`;
  }

  private width(): number {
    return this.scroller.clientWidth;
  }

  private resized(): void {
    this.measure();
    this.paint();
  }

  private later(): void {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    this.due = false;
    const { shown, canvas } = this;
    const [width, height] = [this.width(), this.scroller.clientHeight];
    if (!shown || width <= 0 || height <= 0) return;
    const began = performance.now();
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext("2d", { alpha: false });
    if (!context) return;
    const painter = new Painter(context, shown, this.dark.matches);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    painter.clear(width, height);
    const top = this.scroller.scrollTop;
    const rowFrom = Math.floor(top / ROW);
    const rowTo = Math.ceil((top + height) / ROW);
    this.places = [];
    layout(
      shown.tree,
      shown.zoom,
      width,
      (node, row, left, right, weight) => {
        const place = { node, row, left: left / 10, right: right / 10, weight };
        this.places.push(place);
        if (node === REST) painter.rest(place, row * ROW - top);
        else painter.box(place, row * ROW - top);
      },
      rowFrom,
      rowTo,
    );
    // The root needs no mark: it is what the page opens with.
    const selected = this.selected === 0 ? undefined : this.selected;
    this.put(this.selectMark, this.places.find((place) => place.node === selected));
    performance.clearMeasures("paint");
    performance.measure("paint", { start: began, end: performance.now() });
  }

  private put(markElement: HTMLElement, place: Place | undefined): void {
    markElement.hidden = !place;
    if (!place) return;
    markElement.style.left = `${place.left}px`;
    markElement.style.top = `${place.row * ROW}px`;
    markElement.style.width = `${Math.max(place.right - place.left - 0.5, 1)}px`;
    markElement.style.height = `${BOX}px`;
  }

  private at(event: MouseEvent): Place | undefined {
    const bounds = this.canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const row = Math.floor((event.clientY - bounds.top + this.scroller.scrollTop) / ROW);
    return this.places.find((place) => place.row === row && x >= place.left && x < place.right);
  }

  private moved(event: MouseEvent): void {
    const place = this.at(event);
    this.put(this.hoverMark, place);
    this.canvas.style.cursor = place && place.node !== REST ? "pointer" : "default";
    this.listener.hover(place ?? null, event);
  }

  private left(): void {
    this.hoverMark.hidden = true;
    this.listener.hover(null, null);
  }
}

/** Draws boxes of one view in one theme. */
class Painter {
  private readonly shades;
  private readonly ink: string;
  private readonly ground: string;
  private readonly rootFill: string;
  private readonly restFill: string;
  private readonly outline: string;
  private readonly advance: number;
  private readonly names = new Map<number, string>();

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly shown: Shown,
    dark: boolean,
  ) {
    this.shades = dark ? DARK : LIGHT;
    this.ink = dark ? "#f2f4f7" : "#15191e";
    this.ground = dark ? "#14181d" : "#ffffff";
    this.rootFill = dark ? ROOT_DARK : ROOT_LIGHT;
    this.restFill = dark ? REST_DARK : REST_LIGHT;
    this.outline = dark ? "#ffffff" : "#000000";
    context.font = FONT;
    this.advance = context.measureText("0").width;
  }

  clear(width: number, height: number): void {
    this.context.font = FONT;
    this.context.textBaseline = "middle";
    this.context.fillStyle = this.ground;
    this.context.fillRect(0, 0, width, height);
  }

  rest(place: Place, y: number): void {
    this.context.fillStyle = this.restFill;
    this.context.fillRect(place.left, y, place.right - place.left - 0.5, BOX);
  }

  box(place: Place, y: number): void {
    const { context, shown } = this;
    const { tree, search } = shown;
    const key = tree.keyOf(place.node);
    const func = shown.functions[key];
    const width = Math.max(place.right - place.left - 0.5, 0.3);
    const matched = !search || !func || search.matches[key] !== 0;
    const caller = tree.depthOf(place.node) < tree.depthOf(shown.zoom);
    context.globalAlpha = matched ? (caller ? 0.55 : 1) : 0.3;
    context.fillStyle = func ? this.shades[func.kind][key % 3] : this.rootFill;
    context.fillRect(place.left, y, width, BOX);
    context.globalAlpha = 1;
    if (search && func && matched) {
      context.fillStyle = this.outline;
      // A bar under the box rather than a frame around it: narrow matches stay visible.
      context.fillRect(place.left, y + BOX - 3, Math.max(width, 1), 3);
    }
    if (width < 3 * this.advance + 2 * PADDING) return;
    const room = Math.floor((width - 2 * PADDING) / this.advance);
    const text = fitting(this.name(place.node, key), room);
    if (text === null) return;
    context.globalAlpha = matched ? 1 : 0.55;
    context.fillStyle = this.ink;
    context.fillText(text, place.left + PADDING, y + BOX / 2 + 0.5, width - 2 * PADDING);
    context.globalAlpha = 1;
  }

  private name(node: number, key: number): string {
    const func = this.shown.functions[key];
    if (!func) return rootName(this.shown);
    let name = this.names.get(key);
    if (name === undefined) this.names.set(key, (name = visible(func.label)));
    return mark(this.shown.tree.marksOf(node))[0] + name;
  }
}


function rootName(shown: Shown): string {
  return `all: ${whole(shown.view)}`;
}
