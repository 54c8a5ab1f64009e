// Curves over tokens: the curve under the pointer colors the tokens by its values; the token under
// the pointer shows its value in every curve. Click or Enter pins a curve, Escape releases it.
"use strict";
(() => {
  const COLORS = 6;
  const { register, draw, announcer, format } = globalThis.cloze;

  register("token-curves", (figure, data) => {
    const picture = figure.querySelector("svg");
    const tokens = [...picture.querySelectorAll(".token")];
    const rows = [...picture.querySelectorAll(".curve")];
    const announce = announcer(figure);
    if (!rows.length) return;
    const boxes = tokens.map((one) => one.querySelector("rect"));
    const numbers = tokens.map((one) => one.querySelectorAll("text")[1]);
    const usual = boxes.map((box, n) => [
      box.getAttribute("class"), box.getAttribute("fill-opacity"), numbers[n].textContent,
    ]);
    const peaks = data.curves.map((one) => Math.max(...one.values, 0) || 1);
    const values = rows.map((row) => row.querySelector(".value"));
    const heights = values.map((one) => one.textContent);
    const cross = draw("path", { class: "cross", visibility: "hidden" }, picture);
    const first = Number(rows[0].querySelector(".row").getAttribute("y"));
    const last = rows[rows.length - 1].querySelector(".row");
    const bottom = Number(last.getAttribute("y")) + Number(last.getAttribute("height"));
    let pinned = null, selected = null, token = null;

    const paint = () => {
      picture.classList.toggle("chosen", selected !== null);
      rows.forEach((row, n) => {
        row.classList.toggle("selected", n === selected);
        row.classList.toggle("pinned", n === pinned);
        row.setAttribute("aria-pressed", String(n === pinned));
        values[n].textContent = token === null ? heights[n] : format(data.curves[n].values[token]);
      });
      boxes.forEach((box, n) => {
        const own = selected === null ? usual[n] : [
          `f${selected % COLORS}`,
          (data.opacity * Math.max(data.curves[selected].values[n], 0)) / peaks[selected],
          format(Number(data.curves[selected].values[n].toPrecision(2))),
        ];
        box.setAttribute("class", own[0]);
        box.setAttribute("fill-opacity", own[1]);
        numbers[n].textContent = own[2];
        tokens[n].classList.toggle("at", n === token);
      });
      cross.setAttribute("visibility", token === null ? "hidden" : "visible");
      if (token !== null) cross.setAttribute("d", `M${data.xs[token]} ${first}V${bottom}`);
    };
    const say = () => {
      if (token !== null) {
        const ranked = data.curves.map((one) => [one.name, one.values[token]]).sort((a, b) => b[1] - a[1]);
        announce(`${data.tokens[token]}: ` + ranked.map(([name, value]) => `${name} ${format(value)}`).join(", "));
      } else if (selected !== null) {
        const one = data.curves[selected];
        const ranked = one.values.map((value, n) => [data.tokens[n], value]).sort((a, b) => b[1] - a[1]);
        const best = ranked.slice(0, 5).filter(([, value]) => value > 0);
        announce(`${one.name}: ` + best.map(([name, value]) => `${name} ${format(value)}`).join(", "));
      } else announce("");
    };
    const show = (curve, at) => {
      selected = curve === null ? pinned : curve;
      token = at;
      paint();
      say();
    };
    const pin = (n) => { pinned = pinned === n ? null : n; show(n, token); };

    rows.forEach((row, n) => {
      row.setAttribute("tabindex", n ? "-1" : "0");
      row.addEventListener("pointerenter", () => show(n, null));
      row.addEventListener("pointermove", (event) => {
        const inner = picture.getBoundingClientRect();
        const view = picture.viewBox.baseVal;
        const x = view.x + ((event.clientX - inner.left) * view.width) / inner.width;
        const inside = x >= data.xs[0] - 8;
        let at = 0;
        data.xs.forEach((place, m) => { if (Math.abs(place - x) < Math.abs(data.xs[at] - x)) at = m; });
        show(n, inside ? at : null);
      });
      row.addEventListener("pointerleave", () => show(null, null));
      row.addEventListener("click", () => pin(n));
      row.addEventListener("focus", () => { if (row.matches(":focus-visible")) show(n, null); });
      row.addEventListener("blur", () => show(null, null));
      row.addEventListener("keydown", (event) => {
        const down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
        const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (down) {
          const next = rows[Math.min(rows.length - 1, Math.max(0, n + down))];
          rows.forEach((one) => one.setAttribute("tabindex", one === next ? "0" : "-1"));
          next.focus();
        } else if (across) {
          const before = token === null ? (across > 0 ? -1 : tokens.length) : token;
          show(n, Math.min(tokens.length - 1, Math.max(0, before + across)));
        } else if (event.key === "Enter" || event.key === " ") pin(n);
        else if (event.key === "Escape") { pinned = null; show(null, null); }
        else return;
        event.preventDefault();
      });
    });
    tokens.forEach((one, n) => {
      one.addEventListener("pointerenter", () => show(null, n));
      one.addEventListener("pointerleave", () => show(null, null));
    });
  });
})();
