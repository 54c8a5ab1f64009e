// Shows the values of a chart under the pointer, or along the arrow keys. Each figure carries its
// data in a block of JSON; text only ever becomes text nodes. Other kinds of figure have scripts of
// their own (scripts/NAME.js), which run after this one and call `cloze.register`.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const NEAR = 6;  // pixels of the drawing within which points belong together

  const make = (tag, text, parent) => {
    const node = document.createElement(tag);
    node.textContent = text;
    parent.append(node);
    return node;
  };
  const draw = (tag, attributes, parent) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    parent.append(node);
    return node;
  };
  const grouped = (value) => value.toLocaleString("en", { maximumSignificantDigits: 8 });
  const shown = (value, percent) => {
    if (percent) return (100 * value).toFixed(2) + "\u00a0%";
    const digits = Number(value.toPrecision(5));
    if (digits && Math.abs(digits) < 1e-3) return digits.toExponential();
    return Math.abs(value) < 1e4 ? String(digits) : grouped(digits);
  };
  const nearest = (points, x) =>
    points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best));

  function lines(figure, data) {
    const picture = figure.querySelector("svg");
    const view = picture.viewBox.baseVal;
    const series = data.series.filter((one) => one.points.length);
    if (!series.length) return;
    const shared = new Map();  // place -> how many series have a point there
    for (const one of series)
      for (const place of new Set(one.points.map((p) => p[0]))) shared.set(place, (shared.get(place) || 0) + 1);
    const places = [...shared.keys()].sort((a, b) => a - b);
    const cross = draw("path", { class: "cross", visibility: "hidden" }, picture);
    const box = make("div", "", figure);
    box.className = "hover";
    box.hidden = true;
    let at = places.length - 1;

    const hide = () => {
      box.hidden = true;
      cross.setAttribute("visibility", "hidden");
    };
    const show = () => {
      const x = places[at];
      const near = series
        .map((one) => [one, nearest(one.points, x)])
        .filter(([, point]) => Math.abs(point[0] - x) <= NEAR);
      const [, exact] = near.find(([, point]) => point[0] === x);
      cross.setAttribute("d", `M${x} ${data.top}V${data.bottom}`);
      cross.setAttribute("visibility", "visible");
      box.replaceChildren();
      make("div", `${data.x} ${grouped(exact[2])}`, box);
      for (const [one, point] of near) {
        const where = point[2] === exact[2] ? "" : ` at ${grouped(point[2])}`;
        const row = make("div", "", box);
        const sample = draw("svg", { class: "lines", viewBox: "0 0 18 6" }, row);
        draw("path", { class: one.class, d: "M1 3h16" }, sample);
        make("span", one.name + where, row);
        make("b", shown(point[3], data.percent), row);
      }
      box.hidden = false;
      const frame = figure.getBoundingClientRect();
      const inner = picture.getBoundingClientRect();
      const scale = inner.width / view.width;
      const left = inner.left - frame.left + figure.scrollLeft + (x - view.x) * scale;
      const flip = left + 16 + box.offsetWidth > figure.scrollLeft + frame.width;
      box.style.left = `${Math.max(4, flip ? left - 16 - box.offsetWidth : left + 16)}px`;
      box.style.top = `${inner.top - frame.top + data.top * scale + 8}px`;
    };
    picture.addEventListener("pointermove", (event) => {
      const inner = picture.getBoundingClientRect();
      const x = view.x + ((event.clientX - inner.left) * view.width) / inner.width;
      const close = (place) => Math.abs(place - x);
      // Where many series were measured, such as at an evaluation, the pointer is drawn to.
      const pull = (place) => (close(place) <= NEAR ? shared.get(place) : 0);
      at = places.indexOf(
        places.reduce((best, p) => (pull(p) - pull(best) || close(best) - close(p)) > 0 ? p : best),
      );
      show();
    });
    picture.addEventListener("pointerleave", hide);
    picture.addEventListener("blur", hide);
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      at = Math.min(places.length - 1, Math.max(0, at + step));
      show();
    });
    picture.setAttribute("tabindex", "0");
  }

  // A line below a figure that screen readers read aloud when it changes: what is selected.
  const announcer = (figure) => {
    const line = make("p", "", figure);
    line.className = "status";
    line.setAttribute("role", "status");
    line.setAttribute("aria-live", "polite");
    return (text) => { line.textContent = text; };
  };
  // Calls start(figure, data) for each figure of a kind, with the content of its block of JSON.
  const register = (kind, start) => {
    for (const figure of document.querySelectorAll("figure[data-kind]")) {
      const block = figure.querySelector(':scope > script[type="application/json"]');
      if (block && figure.dataset.kind === kind) start(figure, JSON.parse(block.textContent));
    }
  };
  globalThis.cloze = Object.freeze({ register, make, draw, announcer, format: shown });
  register("lines", lines);

  // In a frame: tell the page around it how high this one is, now and when it changes.
  if (globalThis.parent !== globalThis) {
    const root = document.documentElement;
    const report = () => parent.postMessage({ cloze: "height", height: root.offsetHeight }, "*");
    new ResizeObserver(report).observe(root);
  }
})();
