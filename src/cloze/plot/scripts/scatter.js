// A scatter plot: the point under the pointer, or along the arrow keys, shows its name and details.
// Click or Enter pins it, Escape releases it.
"use strict";
(() => {
  const NEAR = 16;  // pixels of the drawing
  const { register, make, draw, announcer } = globalThis.cloze;

  register("scatter", (figure, data) => {
    const picture = figure.querySelector("svg");
    const view = picture.viewBox.baseVal;
    const points = data.points;
    if (!points.length) return;
    const ring = draw("circle", { class: "ring", r: 8, visibility: "hidden" }, picture);
    const box = make("div", "", figure);
    box.className = "hover";
    box.hidden = true;
    const announce = announcer(figure);
    let at = -1, pinned = -1;

    const show = (n) => {
      at = n;
      ring.setAttribute("visibility", n < 0 ? "hidden" : "visible");
      ring.classList.toggle("pinned", n >= 0 && n === pinned);
      box.hidden = n < 0;
      if (n < 0) { announce(""); return; }
      const { name, detail, group, at: [x, y] } = points[n];
      ring.setAttribute("cx", x);
      ring.setAttribute("cy", y);
      box.replaceChildren();
      make("b", group ? `${name} \u2013 ${group}` : name, make("div", "", box));
      if (detail) make("div", detail, box).className = "wrap";
      announce([name, group, detail].filter(Boolean).join(", "));
      const frame = figure.getBoundingClientRect();
      const inner = picture.getBoundingClientRect();
      const scale = inner.width / view.width;
      const left = inner.left - frame.left + figure.scrollLeft + (x - view.x) * scale;
      const flip = left + 14 + box.offsetWidth > figure.scrollLeft + frame.width;
      box.style.left = `${Math.max(4, flip ? left - 14 - box.offsetWidth : left + 14)}px`;
      box.style.top = `${inner.top - frame.top + (y - view.y) * scale + 10}px`;
    };
    const nearest = (event) => {
      const inner = picture.getBoundingClientRect();
      const x = view.x + ((event.clientX - inner.left) * view.width) / inner.width;
      const y = view.y + ((event.clientY - inner.top) * view.height) / inner.height;
      let best = -1, least = NEAR;
      points.forEach((point, n) => {
        const distance = Math.hypot(point.at[0] - x, point.at[1] - y);
        if (distance < least) [best, least] = [n, distance];
      });
      return best;
    };
    const order = points.map((_, n) => n).sort((a, b) => points[a].at[0] - points[b].at[0]);
    picture.addEventListener("pointermove", (event) => {
      const n = nearest(event);
      if (n >= 0 || pinned < 0) { if (n !== at) show(n); } else if (at !== pinned) show(pinned);
    });
    picture.addEventListener("pointerleave", () => show(pinned));
    picture.addEventListener("click", (event) => {
      const n = nearest(event);
      pinned = n === pinned ? -1 : n;
      show(n);
    });
    picture.addEventListener("blur", () => show(pinned));
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (step) {
        const place = at < 0 ? (step > 0 ? -1 : order.length) : order.indexOf(at);
        show(order[Math.min(order.length - 1, Math.max(0, place + step))]);
      } else if (event.key === "Enter" || event.key === " ") { pinned = pinned === at ? -1 : at; show(at); }
      else if (event.key === "Escape") { pinned = -1; show(-1); }
      else return;
      event.preventDefault();
    });
    picture.setAttribute("tabindex", "0");
  });
})();
