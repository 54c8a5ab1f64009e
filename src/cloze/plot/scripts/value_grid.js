// A heatmap whose cells show their values under the pointer and along the arrow keys; a click or
// Enter pins a cell, Escape releases it.
"use strict";
(() => {
  const { register, make, draw, announcer, format } = globalThis.cloze;
  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  register("value_grid", (figure, data) => {
    const picture = figure.querySelector("svg");
    const cells = [...picture.querySelectorAll("g.data rect")];
    const across = data.columns.length, down = data.rows.length;
    if (cells.length !== across * down || !cells.length) return;
    for (const title of picture.querySelectorAll("g.data rect > title")) title.remove();
    const say = announcer(figure);
    const outline = draw("rect", { class: "outline", visibility: "hidden" }, picture);
    const box = make("div", "", figure);
    box.className = "hover";
    box.hidden = true;
    let row = 0, column = 0, pinned = false;

    const named = (title, name) => (title ? `${title} ${name}` : name);
    const written = (value, percent) => (value === null ? "–" : format(value, percent));
    const summary = () => {
      const where = [named(data.row_title, data.rows[row]), named(data.column_title, data.columns[column])];
      const value = written(data.values[row][column], data.percent);
      return [where.join(", "), data.value_title ? `${data.value_title} ${value}` : value];
    };
    const hide = () => {
      if (pinned) return;
      box.hidden = true;
      outline.setAttribute("class", "outline");
      outline.setAttribute("visibility", "hidden");
    };
    const show = (aloud) => {
      const cell = cells[row * across + column];
      for (const name of ["x", "y", "width", "height"]) outline.setAttribute(name, cell.getAttribute(name));
      outline.setAttribute("class", pinned ? "outline pinned" : "outline");
      outline.setAttribute("visibility", "visible");
      const [where, value] = summary();
      box.replaceChildren();
      make("div", where, box);
      const first = make("div", "", box);
      if (data.texts) make("span", data.texts[row][column], first);
      make("b", value, first);
      const details = data.details ? data.details[row][column] : [];
      for (const [name, number] of details) {
        const line = make("div", "", box);
        make("span", name, line);
        make("b", written(number, data.details_percent), line);
      }
      box.hidden = false;
      const frame = figure.getBoundingClientRect(), inner = cell.getBoundingClientRect();
      const right = inner.right - frame.left + figure.scrollLeft + 8;
      const flip = right + box.offsetWidth > figure.scrollLeft + frame.width;
      const left = inner.left - frame.left + figure.scrollLeft - 8 - box.offsetWidth;
      box.style.left = `${Math.max(4, flip ? left : right)}px`;
      box.style.top = `${inner.top - frame.top + figure.scrollTop}px`;
      if (aloud) {
        const listed = details.map(([name, number]) => `${name} ${written(number, data.details_percent)}`);
        say([where, value, ...listed].join("; "));
      }
    };
    const select = (index, aloud) => {
      row = Math.floor(index / across);
      column = index % across;
      show(aloud);
    };

    picture.addEventListener("pointermove", (event) => {
      const index = cells.indexOf(event.target);
      if (index >= 0 && !pinned) select(index, false);
    });
    picture.addEventListener("pointerleave", hide);
    picture.addEventListener("click", (event) => {
      const index = cells.indexOf(event.target);
      if (index < 0) return;
      pinned = !(pinned && index === row * across + column);
      select(index, true);
    });
    picture.addEventListener("focus", () => show(true));
    picture.addEventListener("blur", hide);
    picture.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (step) {
        row = Math.min(down - 1, Math.max(0, row + step[0]));
        column = Math.min(across - 1, Math.max(0, column + step[1]));
      } else if (event.key === "Home" || event.key === "End") {
        column = event.key === "Home" ? 0 : across - 1;
      } else if (event.key === "Enter" || event.key === " ") {
        pinned = !pinned;
      } else if (event.key === "Escape") {
        pinned = false;
        outline.setAttribute("class", "outline");
        hide();
        return;
      } else {
        return;
      }
      event.preventDefault();
      show(true);
    });
    picture.setAttribute("tabindex", "0");
  });
})();
