// Tokens colored by their contribution to an output. The output under the pointer, its name or its
// token in the text, colors all tokens; another token shows its value. Click or Enter pins an
// output, Escape releases it; the arrow keys go from token to token and from output to output.
"use strict";
(() => {
  const { register, announcer, format } = globalThis.cloze;
  const SMALLEST = 0.005;  // a saliency below it has no number

  register("token-saliency", (figure, data) => {
    const picture = figure.querySelector("svg");
    const tokens = [...picture.querySelectorAll(".token")];
    const outputs = [...picture.querySelectorAll(".output")];
    const announce = announcer(figure);
    const boxes = tokens.map((one) => one.querySelector("rect"));
    const numbers = tokens.map((one) => one.querySelectorAll("text")[1]);
    const titles = tokens.map((one) => one.querySelector("title"));
    const peaks = data.columns.map((one) => Math.max(...one.values.map(Math.abs)) || 1);
    const made = new Map(data.columns.map((one, n) => [one.token, n]));  // token -> output
    let pinned = 0, selected = 0, token = null;

    const exact = (value) => (data.signed ? (value > 0 ? "+" : "") + format(value) : format(value, true));
    const short = (value) => {
      if (data.signed) {
        const text = value.toFixed(data.decimals);
        return Number(text) ? (value > 0 ? "+" : "") + text : "";
      }
      return value >= SMALLEST ? `${Math.round(100 * value)}\u00a0%` : "";
    };
    const paint = () => {
      const column = data.columns[selected];
      outputs.forEach((one, n) => {
        one.classList.toggle("selected", n === selected);
        one.classList.toggle("pinned", n === pinned && outputs.length > 1);
        one.setAttribute("aria-pressed", String(n === pinned));
      });
      boxes.forEach((box, n) => {
        const value = column.values[n];
        box.setAttribute("class", value < 0 ? "less" : "more");
        box.setAttribute("fill-opacity", (data.opacity * Math.abs(value)) / peaks[selected]);
        numbers[n].textContent = short(value);
        titles[n].textContent = `${data.tokens[n]}: ${exact(value)}`;
        tokens[n].classList.toggle("at", n === column.token);
        tokens[n].classList.toggle("here", n === token);
      });
    };
    const say = () => {
      const column = data.columns[selected];
      if (token !== null && !made.has(token)) {
        announce(`${data.tokens[token]}: ${exact(column.values[token])} for ${column.name}`);
        return;
      }
      const ranked = column.values.map((value, n) => [data.tokens[n], value])
        .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 5).filter(([, value]) => value);
      const rest = ranked.map(([name, value]) => `${name} ${exact(value)}`).join(", ");
      announce(`${column.name}${column.detail ? ` (${column.detail})` : ""}: ${rest}`);
    };
    const show = (output, at) => {
      selected = output === null ? pinned : output;
      token = at;
      paint();
      say();
    };
    const find = (n) => (made.has(n) ? made.get(n) : null);
    const pin = (n) => { pinned = n; show(n, token); };
    const move = (nodes, n, step) => {
      const next = nodes[Math.min(nodes.length - 1, Math.max(0, n + step))];
      nodes.forEach((one) => one.setAttribute("tabindex", one === next ? "0" : "-1"));
      next.focus();
    };
    const listen = (nodes, n, output, at) => {
      const node = nodes[n];
      node.setAttribute("tabindex", n ? "-1" : "0");
      node.addEventListener("pointerenter", () => show(output, at));
      node.addEventListener("pointerleave", () => show(null, null));
      node.addEventListener("click", () => { if (output !== null) pin(output); });
      node.addEventListener("focus", () => { if (node.matches(":focus-visible")) show(output, at); });
      node.addEventListener("blur", () => show(null, null));
      node.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
        if (step) move(nodes, n, step);
        else if ((event.key === "Enter" || event.key === " ") && output !== null) pin(output);
        else if (event.key === "Escape") pin(0);
        else return;
        event.preventDefault();
      });
    };
    outputs.forEach((one, n) => {
      one.setAttribute("role", "button");
      one.setAttribute("aria-label", `${data.columns[n].name} ${data.columns[n].detail}`);
      listen(outputs, n, n, null);
    });
    tokens.forEach((one, n) => {
      const output = find(n);
      one.setAttribute("role", output === null ? "img" : "button");
      one.setAttribute("aria-label", output === null ? data.tokens[n] : `${data.tokens[n]}, an output`);
      listen(tokens, n, output, n);
    });
    paint();
  });
})();
