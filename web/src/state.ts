// What is looked at, and its form in the URL: #view=off_cpu&inverted&search=...&zoom=3.17.4

export interface State {
  /** Name of the view; null: the first that has samples. */
  view: string | null;
  inverted: boolean;
  search: string;
  /** Function ids from the root, or from the innermost frame when inverted. */
  zoom: readonly number[];
}

export function read(hash: string): State {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const zoom = (fields.get("zoom") ?? "").split(".").filter((part) => /^\d{1,10}$/.test(part));
  return {
    view: fields.get("view"),
    inverted: fields.has("inverted"),
    search: fields.get("search") ?? "",
    zoom: zoom.map(Number),
  };
}

export function write(state: State): string {
  const fields = new URLSearchParams();
  if (state.view !== null) fields.set("view", state.view);
  if (state.inverted) fields.set("inverted", "1");
  if (state.search !== "") fields.set("search", state.search);
  if (state.zoom.length > 0) fields.set("zoom", state.zoom.join("."));
  return `#${fields}`;
}
