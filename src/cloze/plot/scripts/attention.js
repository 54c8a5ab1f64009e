// Attention: choose layers and heads, point at a token or click to pin it, open a head from its
// small picture, and see the products of query and key. Texts only ever become text nodes or are
// drawn on a canvas.
"use strict";
(() => {
  const { register, make, announcer } = globalThis.cloze;
  const draw = globalThis.clozeAttention;
  const FILTERS = { all: null, "A → A": [0, 0], "A → B": [0, 1], "B → A": [1, 0], "B → B": [1, 1] };
  const TOKEN = ["side", "index", "pinned", "cell"];
  const MOST_KEYS = 24;  // rows of vectors
  const percent = (weight) => `${(100 * weight).toFixed(weight < 0.0995 ? 1 : 0)}\u00a0%`;
  const nameLayers = (numbers) =>
    numbers.length === 1 ? `layer ${numbers[0]}`
    : numbers.length > 6 ? `mean of ${numbers.length} layers` : `mean of layers ${numbers.join(", ")}`;

  function start(figure, data) {
    const byToken = data.maps.map(draw.readMap), byWord = [];
    const state = {
      kind: 0, words: false, filter: "all", layers: [data.layer], heads: [], side: null, index: 0,
      pinned: false, cell: null, focus: null, lines: null, special: true, centred: false,
      version: 0,  // changes with all but the selected token
    };
    figure.classList.add("live");
    const root = make("div", "", figure);
    root.className = "att";
    figure.insertBefore(root, figure.querySelector("figcaption"));
    const title = make("h3", data.title, root);
    const bar = add(root, "att-bar"), main = add(root, "att-main");
    const lines = add(main, "att-lines"), matrix = add(main, "att-matrix");
    const announce = announcer(root);
    make("p", "Point at a token to see what it attends to, or click to pin it; then point at the other side.", root).className = "att-hint";
    const vectors = add(root, "att-vectors"), grid = add(root, "att-grid");
    const tip = add(root, "hover");
    tip.hidden = true;
    title.hidden = !data.title;

    // What is shown now.
    const current = () => {
      if (!state.words) return byToken[state.kind];
      return (byWord[state.kind] ??= draw.mergeWords(byToken[state.kind], data.maps[state.kind]));
    };
    const update = () => {
      state.version += 1;
      state.map = current();
      state.table = draw.meanLayers(state.map, state.layers);
      const wanted = FILTERS[state.filter], { queries, keys } = state.map;
      const isOwn = (side, n) => state.special || (side.sequences[n] ?? null) !== null;
      const connects = wanted
        ? (query, key) => queries.sequences[query] === wanted[0] && keys.sequences[key] === wanted[1]
        : () => true;
      state.allows = (query, key) => connects(query, key) && isOwn(queries, query) && isOwn(keys, key);
    };
    const choose = (changes) => {
      Object.assign(state, changes);
      if (Object.keys(changes).some((name) => !TOKEN.includes(name))) update();
      refresh();
    };
    const resetTokens = () => ({ side: null, pinned: false, cell: null, index: 0 });
    const theme = () => {
      const style = getComputedStyle(root);
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      const read = (name) => style.getPropertyValue(name).trim();
      return {
        ink: read("--ink"), muted: read("--muted"), edge: read("--edge"), accent: read("--accent"),
        positive: dark ? "#ff6b5e" : "#c0272d", negative: dark ? "#5aa9ff" : "#1f6fc4",
        colors: state.map.colors[Number(dark)],
      };
    };

    // The controls.
    const groups = [];
    const addGroup = (name, css, entries) => {
      make("span", name, bar);
      const group = add(bar, `att-group ${css}`);
      const several = css === "heads" || css === "layers";
      group.setAttribute("role", several ? "group" : "radiogroup");
      group.setAttribute("aria-label", name);
      const buttons = entries.map(([text, act, isOn, color]) => {
        const button = make("button", text, group);
        button.type = "button";
        if (!isOn) button.className = "plain";
        if (color) button.style.setProperty("--head", color);
        button.addEventListener("click", (event) => act(event));
        if (isOn) button.setAttribute("role", several ? "checkbox" : "radio");
        groups.push(() => { if (isOn) button.setAttribute("aria-checked", String(isOn())); });
        return button;
      });
      buttons.forEach((button, n) => { button.tabIndex = n ? -1 : 0; });
      group.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
        if (!step) return;
        event.preventDefault();
        const at = buttons.indexOf(document.activeElement);
        const next = buttons[Math.min(buttons.length - 1, Math.max(0, at + step))];
        buttons.forEach((button) => { button.tabIndex = button === next ? 0 : -1; });
        next.focus();
        if (css === "layers" && !next.classList.contains("plain")) next.click();
      });
      return buttons;
    };
    function buildBar() {
      bar.replaceChildren();
      groups.length = 0;
      const map = current(), stored = data.maps[state.kind];
      if (data.maps.length > 1)
        addGroup("Attention", "", data.maps.map((one, n) => [one.name, () => {
          Object.assign(state, resetTokens(), { kind: n, focus: null, filter: "all" });
          state.layers = state.layers.filter((layer) => layer < one.layers.length);
          if (!state.layers.length) state.layers = [0];
          state.heads = one.heads.map((_, head) => head);
          build();
        }, () => state.kind === n]));
      const short = (side) => side.words.length && side.words.length < side.tokens.length;
      if (short(stored.queries) || short(stored.keys))
        addGroup("Show", "", [["tokens", false], ["words", true]].map(([text, words]) => [text, () => {
          Object.assign(state, resetTokens(), { words });
          build();
        }, () => state.words === words]));
      if (map.queries.sequences.includes(1))
        addGroup("From → to", "", Object.keys(FILTERS).map((filter) =>
          [filter, () => choose({ filter }), () => state.filter === filter]));
      const added = (side) => side.sequences.includes(null) && side.sequences.includes(0);
      if (added(map.queries) || added(map.keys))
        addGroup("Special tokens", "", [["shown", true], ["hidden", false]].map(([text, special]) =>
          [text, () => choose({ special }), () => state.special === special]));
      const everyLayer = map.layers.map((_, layer) => layer), everyHead = map.heads.map((_, head) => head);
      if (map.layers.length > 1)
        addGroup("Layers", "layers", [
          ...map.layers.map((number, layer) => [number, (event) => {
            const several = event.shiftKey || event.ctrlKey || event.metaKey;
            choose({ layers: several ? toggle(state.layers, layer) : [layer], focus: null });
          }, () => state.layers.includes(layer)]),
          ["mean of all", () => choose({ layers: everyLayer, focus: null })],
        ]);
      if (map.heads.length > 1) {
        const buttons = addGroup("Heads", "heads", [
          ...map.heads.map((number, head) => [number, (event) => {
            const only = event.shiftKey || event.detail === 2;
            choose({ heads: only ? [head] : toggle(state.heads, head), focus: null });
          }, () => state.heads.includes(head), map.colors[0][head]]),
          ["all", () => choose({ heads: everyHead, focus: null })],
        ]);
        buttons.slice(0, map.heads.length).forEach((button) => { button.title = "double-click: this head only"; });
      }
    }

    // Lines between the tokens.
    const linesTitle = make("h4", "Lines", lines), legend = make("small", "", linesTitle);
    let sides = {}, scroll = null, picture = null, rowHeight = 22;
    function buildLines() {
      lines.replaceChildren();
      lines.append(linesTitle);
      const { queries, keys } = state.map, longest = Math.max(queries.names.length, keys.names.length);
      rowHeight = Math.max(16, Math.min(26, 560 / longest));
      scroll = add(lines, "att-scroll");
      picture = document.createElement("canvas");
      lines.append(picture);
      const columns = add(scroll, "att-columns");
      sides = { query: addSide(columns, "queries", queries, "query"), key: addSide(columns, "keys", keys, "key") };
      scroll.addEventListener("scroll", drawCanvas);
    }
    function addSide(parent, css, side, which) {
      const column = add(parent, `att-side ${css}`);
      column.tabIndex = 0;
      column.setAttribute("role", "listbox");
      column.setAttribute("aria-label", which === "query" ? "Tokens that attend" : "Tokens that are attended to");
      const options = side.names.map((name, n) => {
        const option = make("div", name, column);
        option.setAttribute("role", "option");
        option.id = `att-${serial}-${which}-${n}`;
        option.dir = "auto";
        option.title = name;
        option.style.height = option.style.lineHeight = `${rowHeight}px`;
        option.style.fontSize = `${Math.min(14, rowHeight * 0.72)}px`;
        if (side.sequences[n] === 1) option.classList.add("second");
        option.addEventListener("pointerenter", () => point(which, n));
        option.addEventListener("click", () => pin(which, n));
        return option;
      });
      if (side.sequences.includes(1)) column.classList.add("shift");
      column.addEventListener("pointerleave", () => { if (!state.pinned) choose({ side: null, cell: null }); });
      column.addEventListener("focus", () => { if (!state.side) point(which, 0); });
      column.addEventListener("keydown", (event) => {
        const step = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
        const at = state.side === which ? state.index : 0;
        if (step) {
          const n = Math.min(options.length - 1, Math.max(0, at + step));
          choose({ side: which, index: n, cell: null });
          options[n].scrollIntoView({ block: "nearest" });
        } else if (event.key === "Enter" || event.key === " ") pin(which, at);
        else if (event.key === "Escape") choose(resetTokens());
        else if (event.key === "ArrowRight") sides.key.column.focus();
        else if (event.key === "ArrowLeft") sides.query.column.focus();
        else return;
        event.preventDefault();
      });
      return { column, options };
    }
    // Where a token is pinned, pointing at one of the other side selects the pair.
    const pairWith = (which, n) => (which === "key" ? [state.index, n] : [n, state.index]);
    const point = (which, n) => {
      if (state.pinned) {
        if (which !== state.side) choose({ cell: pairWith(which, n) });
      } else choose({ side: which, index: n, cell: null });
    };
    const pin = (which, n) => {
      if (state.pinned && which !== state.side) choose({ cell: pairWith(which, n) });
      else if (state.pinned && n === state.index) choose(resetTokens());
      else choose({ side: which, index: n, pinned: true, cell: null });
    };
    function drawCanvas() {
      const frame = scroll.getBoundingClientRect();
      picture.style.top = `${scroll.offsetTop}px`;
      const [left, right] = [sides.query.column, sides.key.column].map((column) => column.getBoundingClientRect());
      draw.drawLines(picture, state, {
        width: frame.width, height: scroll.clientHeight, row: rowHeight, top: scroll.scrollTop,
        left: left.right - frame.left, right: right.left - frame.left,
      }, theme().colors);
    }
    function markTokens() {
      const mean = new Map();
      const { map, table, heads, side, index, cell } = state, count = map.queries.names.length;
      if (side)
        for (const head of heads)
          for (let query = side === "query" ? index : 0; query < (side === "query" ? index + 1 : count); query++)
            for (let n = table.starts[head * count + query]; n < table.starts[head * count + query + 1]; n++) {
              const key = table.keys[n];
              if (!state.allows(query, key) || (side === "key" && key !== index)) continue;
              const other = side === "query" ? key : query;
              mean.set(other, (mean.get(other) || 0) + table.weights[n] / heads.length);
            }
      for (const [which, { options, column }] of Object.entries(sides)) {
        options.forEach((option, n) => {
          const own = side === which, weight = side && !own ? mean.get(n) || 0 : 0;
          option.classList.toggle("on", own && n === index);
          option.classList.toggle("pinned", own && n === index && state.pinned);
          option.classList.toggle("current", Boolean(cell) && cell[which === "query" ? 0 : 1] === n && !own);
          option.setAttribute("aria-selected", String(own && n === index));
          option.style.backgroundColor = weight > 0.005 ? `color-mix(in srgb, var(--accent) ${Math.round(75 * Math.sqrt(weight))}%, transparent)` : "";
        });
        if (side === which) column.setAttribute("aria-activedescendant", options[index]?.id || "");
      }
      return mean;
    }

    // The matrix, the pictures of all heads, and the vectors: canvases that know what is where.
    const addCanvas = (parent, label, at, act) => {
      const canvas = document.createElement("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", label);
      parent.append(canvas);
      const find = (event) => {
        const box = canvas.getBoundingClientRect();
        return at()?.(event.clientX - box.left, event.clientY - box.top);
      };
      canvas.addEventListener("pointermove", (event) => act(find(event), event, false));
      canvas.addEventListener("click", (event) => act(find(event), event, true));
      canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
      return canvas;
    };
    const showTip = (event, ...texts) => {
      tip.replaceChildren();
      for (const text of texts) make("div", text, tip);
      tip.hidden = false;
      const frame = root.getBoundingClientRect(), outer = figure.getBoundingClientRect();
      const x = event.clientX - outer.left + 14;
      tip.style.left = `${Math.min(x, outer.width - tip.offsetWidth - 8)}px`;
      tip.style.top = `${event.clientY - frame.top + (frame.top - outer.top) + 16}px`;
    };
    const addModes = (parent, name, values) => {
      const group = add(parent, "att-group");
      group.setAttribute("role", "radiogroup");
      group.setAttribute("aria-label", name);
      for (const [text, value] of values) {
        const button = make("button", text, group);
        button.type = "button";
        button.dataset.value = String(value);
        button.setAttribute("role", "radio");
        button.addEventListener("click", () => choose({ [name]: value }));
      }
      const mark = (value) => {
        for (const button of group.children) button.setAttribute("aria-checked", String(button.dataset.value === String(value)));
      };
      return { group, mark };
    };
    let atMatrix = null, atPicture = null, atVector = null;
    make("h4", "Matrix", matrix);
    const matrixCanvas = addCanvas(matrix, "Matrix of the weights: rows attend to columns", () => atMatrix, (found, event, clicked) => {
      if (!found) { tip.hidden = true; return; }
      const { query, key, weight } = found, { map } = state;
      showTip(event, `${map.queries.names[query]} → ${map.keys.names[key]}: ${percent(weight)}`);
      if (clicked) choose({ side: "query", index: query, pinned: true, cell: [query, key] });
    });
    const gridTitle = make("h4", "All layers and heads", grid);
    make("small", "click a picture to open it", gridTitle);
    const modes = addModes(grid, "lines", [["lines", true], ["matrices", false]]);
    const describe = (layer, head) => {
      const { map } = state, [pattern, weight] = draw.describeHead(map, layer, head);
      const name = `Layer ${map.layers[layer]}, head ${map.heads[head]}`;
      return weight > 0.3 ? `${name}: ${percent(weight)} of the attention to ${pattern}` : name;
    };
    const openHead = (layer, head) => {
      choose({ layers: [layer], heads: [head], focus: [layer, head] });
      main.scrollIntoView({ block: "nearest", behavior: "smooth" });
    };
    const gridCanvas = addCanvas(grid, "A picture of each layer (rows) and head (columns)", () => atPicture, (found, event, clicked) => {
      if (!found) { tip.hidden = true; return; }
      showTip(event, describe(found.layer, found.head));
      if (clicked) openHead(found.layer, found.head);
    });
    gridCanvas.tabIndex = 0;
    gridCanvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      const { map } = state, [layer, head] = state.focus || [state.layers[0], state.heads[0]];
      if (step) {
        if (map.layers.length > 1.3 * map.heads.length) step.reverse();
        const clamp = (n, most) => Math.min(most - 1, Math.max(0, n));
        state.focus = [clamp(layer + step[0], map.layers.length), clamp(head + step[1], map.heads.length)];
        drawGrid();
        announce(describe(...state.focus));
      } else if (event.key === "Enter" || event.key === " ") openHead(layer, head);
      else return;
      event.preventDefault();
    });
    const vectorTitle = make("h4", "Query and keys", vectors), vectorPart = make("small", "", vectorTitle);
    const hint = make("p", "Select a token to see how its query and the keys make its weights.", vectors);
    hint.className = "att-hint";
    const centring = addModes(vectors, "centred", [["products", false], ["differences from the mean key", true]]);
    const vectorCanvas = addCanvas(vectors, "Products of query and keys", () => atVector, (found, event, clicked) => {
      if (!found) { tip.hidden = true; return; }
      const texts = [`${state.map.queries.names[state.query]} → ${state.map.keys.names[found.key]}: ${percent(found.weight)}`];
      if (found.i !== null)
        texts.push(`dimension ${found.i + 1}: q ${found.q.toFixed(3)}, k ${found.k.toFixed(3)}, qk/√d ${found.product.toFixed(3)}`);
      showTip(event, ...texts);
      if (clicked) choose({ side: "query", index: state.query, pinned: true, cell: [state.query, found.key] });
    });
    const drawGrid = () => {
      const asLines = state.lines ?? state.map.queries.names.length <= 64;
      modes.mark(asLines);
      atPicture = draw.drawPictures(gridCanvas, state, root.clientWidth, theme(), asLines);
    };
    // The head whose vectors are shown: the one selected, or the one that attends most strongly.
    function drawQueryKeys() {
      const { map, table, side, index, cell, layers, heads } = state;
      const query = side === "query" ? index : cell ? cell[0] : null;
      const only = byToken[state.kind].vectors?.layer ?? null;  // of a long text, the page has one layer
      const has = only === null || layers[0] === only;
      const possible = map.vectors && query !== null && layers.length === 1 && has;
      vectors.hidden = !byToken[state.kind].vectors;
      vectorCanvas.hidden = !possible;
      hint.hidden = Boolean(possible);
      centring.group.hidden = !possible;
      centring.mark(state.centred);
      hint.textContent = state.words ? "Queries and keys belong to tokens: show tokens instead of words."
        : layers.length > 1 ? "Select one layer to see its queries and keys."
        : !has ? `This page has the queries and keys of layer ${map.layers[only]}, because the text is long.`
        : "Select a token to see how its query and the keys make its weights.";
      vectorPart.textContent = "";
      if (!possible) return;
      const count = map.queries.names.length, entries = (head) => {
        const found = [];
        for (let n = table.starts[head * count + query]; n < table.starts[head * count + query + 1]; n++)
          found.push({ key: table.keys[n], weight: table.weights[n] });
        return found;
      };
      const strength = (head) => entries(head).reduce((best, one) =>
        (cell && one.key !== cell[1] ? best : Math.max(best, one.weight)), 0);
      const head = heads.reduce((best, one) => (strength(one) > strength(best) ? one : best), heads[0]);
      let rows = entries(head);
      if (rows.length > MOST_KEYS) {
        const floor = [...rows].sort((a, b) => b.weight - a.weight)[MOST_KEYS - 1].weight;
        rows = rows.filter((one) => one.weight >= floor);
      }
      state.query = query;
      const choice = heads.length > 1 ? ", the selected head with the largest weight here" : "";
      vectorPart.textContent = `layer ${map.layers[layers[0]]}, head ${map.heads[head]}${choice}; red: positive, blue: negative`;
      atVector = draw.drawVectors(vectorCanvas, { ...state, focus: [layers[0], head] }, rows, root.clientWidth, theme());
    }
    const describeFilter = () => {
      const sum = FILTERS[state.filter] && draw.sumBetween(state, FILTERS[state.filter][0]);
      return sum === null ? "" : `; ${state.filter}: ${percent(sum)} of the attention of ${state.filter[0]}`;
    };
    const describeRetained = () => {
      const found = state.layers.flatMap((layer) => state.heads.map((head) => state.map.retained[layer][head]));
      const mean = found.reduce((sum, one) => sum + one, 0) / found.length;
      return mean < 0.9995 ? `; ${percent(mean)} of this attention is shown, the rest are smaller weights` : "";
    };
    function summarize(mean) {
      const { map, layers, heads, side, index, cell } = state;
      const layerText = nameLayers(layers.map((n) => map.layers[n]));
      const headText = heads.length === 1 ? `head ${map.heads[heads[0]]}`
        : `mean of ${heads.length === map.heads.length ? "all" : "selected"} ${heads.length} heads`;
      const where = `(${layerText}, ${headText})`;
      legend.textContent = `${map.name}, ${layerText}, ${headText}${describeFilter()}${describeRetained()}`;
      if (!side) return "";
      const others = side === "query" ? map.keys.names : map.queries.names;
      const own = side === "query" ? map.queries.names[index] : map.keys.names[index];
      const best = [...mean].sort((a, b) => b[1] - a[1]).slice(0, 5).map(([n, weight]) => `${others[n]} ${percent(weight)}`);
      const verb = side === "query" ? "attends to" : "gets attention from";
      const pair = cell ? ` Selected: ${map.queries.names[cell[0]]} → ${map.keys.names[cell[1]]}.` : "";
      return `“${own}” ${verb} ${best.join(", ") || "nothing"} ${where}.${pair}`;
    }

    function refresh() {
      root.classList.toggle("narrow", root.clientWidth < 760);
      for (const set of groups) set();
      const mean = markTokens();
      drawCanvas();
      atMatrix = draw.drawMatrix(matrixCanvas, state, matrix.clientWidth, theme());
      drawQueryKeys();
      scheduleGrid();
      announce(summarize(mean));
    }
    // Pictures change only with the selection of layers and heads, and take longer to draw.
    let drawn = "";
    function scheduleGrid() {
      const now = JSON.stringify([state.kind, state.words, state.layers, state.heads, state.focus, state.lines, root.clientWidth]);
      if (now === drawn) return;
      drawn = now;
      grid.hidden = state.map.layers.length * state.map.heads.length === 1;
      requestAnimationFrame(drawGrid);
    }
    const build = () => {
      update();
      buildBar();
      buildLines();
      refresh();
    };
    const serial = ++started;
    state.heads = data.head === null ? data.maps[0].heads.map((_, head) => head) : [data.head];
    if (data.head !== null) state.focus = [data.layer, data.head];
    if (data.token !== null) Object.assign(state, { side: "query", index: data.token, pinned: true });
    build();
    let width = root.clientWidth;
    new ResizeObserver(() => { if (root.clientWidth !== width) { width = root.clientWidth; refresh(); } }).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawn = ""; refresh(); });
  }

  let started = 0;
  const add = (parent, css) => {
    const node = make("div", "", parent);
    node.className = css;
    return node;
  };
  const toggle = (chosen, one) => {
    const others = chosen.filter((n) => n !== one);
    if (!chosen.includes(one)) return [...chosen, one].sort((a, b) => a - b);
    return others.length ? others : chosen;
  };
  register("attention", start);
})();
