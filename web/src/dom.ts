// Making elements. Text only ever becomes text nodes and attributes, never markup.

type Attributes = Record<string, string>;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A name that may break where its words end. */
export function breakable(name: string): (Node | string)[] {
  return name.split(/(?<=[_./:])(?=\w)/).flatMap((part, at) => (at > 0 ? [element("wbr"), part] : [part]));
}

export function button(id: string, title: string, text: string, click: () => void): HTMLButtonElement {
  const made = element("button", { id, type: "button", title }, text);
  made.addEventListener("click", click);
  return made;
}

/** Offers a text as a file. */
export function save(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  // The download has its own hold on the data once it has started.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
