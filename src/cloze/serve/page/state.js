// What a link reproduces is in the hash of the address: panel, model and the fields of the panel.

const LONGEST = 100_000; // characters; longer texts are not in the address

export function readState() {
  const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const { panel = "", model = "", ...values } = found;
  return { panel, model, values };
}

export function writeState({ panel, model, values }, { isNew = false } = {}) {
  const hash = `#${new URLSearchParams({ panel, model, ...values })}`;
  if (hash.length > LONGEST || hash === location.hash) return;
  history[isNew ? "pushState" : "replaceState"](null, "", hash);
}
