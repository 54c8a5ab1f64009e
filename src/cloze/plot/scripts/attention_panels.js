// The drawings of an attention figure on canvases: lines, matrix, pictures of all heads, vectors.
// Each function draws one of them from `state` and returns what is under a point, for the script.
"use strict";
(() => {
  const VISIBLE = 0.02, MOST_LINES = 7000, MOST_SMALL = 220;

  // A canvas of a size in CSS pixels, sharp on every screen.
  function prepare(canvas, width, height) {
    const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
    pen.textBaseline = "middle";
    return pen;
  }
  const shorten = (pen, text, width) => {
    if (pen.measureText(text).width <= width) return text;
    let end = text.length;
    while (end > 1 && pen.measureText(text.slice(0, end) + "…").width > width) end--;
    return text.slice(0, end) + "…";
  };
  // The smallest weight of those to draw, if at most `most` of them are.
  const findFloor = (weights, most) => {
    if (weights.length <= most) return 0;
    const bins = new Uint32Array(1001);
    for (const weight of weights) bins[Math.min(1000, Math.floor(weight * 1000))]++;
    let bin = 1000, sum = bins[1000];
    while (bin > 0 && sum + bins[bin - 1] <= most) sum += bins[--bin];
    return bin / 1000;
  };

  // Lines between two columns of tokens. `geometry` has the height of a row and the scroll offset.
  function drawLines(canvas, state, geometry, colors) {
    const { width, height, left, right, row, top } = geometry;
    const pen = prepare(canvas, width, height);
    const { map, table, heads, side, index, allows } = state;
    const count = map.queries.names.length, found = [];
    const visible = side ? Math.min(VISIBLE, 2 / map.keys.names.length) : VISIBLE;
    for (const head of heads)
      for (let query = 0; query < count; query++) {
        if (side === "query" && query !== index) continue;
        const at = head * count + query;
        for (let n = table.starts[at]; n < table.starts[at + 1]; n++) {
          const key = table.keys[n], weight = table.weights[n];
          if (weight < visible || (side === "key" && key !== index) || !allows(query, key)) continue;
          found.push([weight, head, query, key]);
        }
      }
    const floor = findFloor(found.map((line) => line[0]), MOST_LINES);
    const strip = Math.min(6, 60 / Math.max(heads.length, 1)), edge = strip * heads.length;
    const from = left + (side === "key" ? edge + 6 : 4), to = right - (side === "query" ? edge + 6 : 4);
    const middle = (from + to) / 2;
    found.sort((a, b) => a[0] - b[0]);
    for (const [weight, head, query, key] of found) {
      if (weight < floor) continue;
      const y = (query + 0.5) * row - top, end = (key + 0.5) * row - top;
      if ((y < -row && end < -row) || (y > height + row && end > height + row)) continue;
      pen.strokeStyle = colors[head];
      pen.globalAlpha = Math.min(1, side ? 0.12 + 0.88 * weight : weight * 0.9 + 0.02);
      pen.lineWidth = side ? 1 + 3.5 * weight : 1 + 1.5 * weight;
      pen.beginPath();
      pen.moveTo(from, y);
      pen.bezierCurveTo(middle, y, middle, end, to, end);
      pen.stroke();
    }
    // beside each token of the other side, a cell for each head
    if (side)
      for (const [weight, head, query, key] of found) {
        const n = heads.indexOf(head), other = side === "query" ? key : query;
        const x = side === "query" ? right - edge - 2 + n * strip : left + 2 + n * strip;
        pen.fillStyle = colors[head];
        pen.globalAlpha = Math.min(1, 0.08 + weight);
        pen.fillRect(x, other * row - top + 2, strip - 1, Math.max(row - 4, 2));
      }
    pen.globalAlpha = 1;
  }

  // The mean of the selected heads for each query and key, as a dense array.
  function computeMean(state) {
    const { map, table, heads, allows } = state;
    const count = map.queries.names.length, width = map.keys.names.length;
    const found = new Float32Array(count * width);
    for (const head of heads)
      for (let query = 0; query < count; query++)
        for (let n = table.starts[head * count + query]; n < table.starts[head * count + query + 1]; n++)
          if (allows(query, table.keys[n])) found[query * width + table.keys[n]] += table.weights[n] / heads.length;
    return found;
  }

  // The cells of the matrix, which stay the same while tokens are selected.
  const matrices = new WeakMap();
  function drawCells(canvas, state, space, theme) {
    const stored = matrices.get(canvas);
    if (stored && stored.version === state.version && stored.space === space && stored.ink === theme.ink) return stored;
    const { map, heads } = state, mean = computeMean(state);
    const rows = map.queries.names, columns = map.keys.names;
    const labelled = Math.max(rows.length, columns.length) <= 48;
    const ruler = prepare(document.createElement("canvas"), 1, 1);
    const widest = (names) => Math.min(110, Math.max(...names.map((name) => ruler.measureText(name).width), 0));
    const left = labelled ? widest(rows) + 10 : 22, top = labelled ? 0.72 * widest(columns) + 16 : 22;
    const over = labelled ? 0.72 * widest(columns.slice(-1)) : 4;
    const size = Math.min(30, (space - left - over) / columns.length, 620 / rows.length);
    const image = document.createElement("canvas");
    const pen = prepare(image, size * columns.length, size * rows.length);
    const largest = mean.reduce((best, weight) => Math.max(best, weight), 1e-9);
    const shade = (weight) => Math.sqrt(weight / largest), gap = size > 8 ? 1 : 0;
    const color = heads.length === 1 ? theme.colors[heads[0]] : theme.accent;
    pen.fillStyle = color;
    if (size >= 2)
      mean.forEach((weight, n) => {
        if (!weight) return;
        pen.globalAlpha = shade(weight);
        pen.fillRect((n % columns.length) * size + gap, Math.floor(n / columns.length) * size + gap, size - gap, size - gap);
      });
    else drawPooled(pen, mean, rows.length, columns.length, size, shade);
    const found = { version: state.version, ink: theme.ink, space, mean, largest, labelled, left, top, size, image, color };
    matrices.set(canvas, found);
    return found;
  }

  // The matrix; returns the query and key at a point.
  function drawMatrix(canvas, state, space, theme) {
    const { map, side, index, cell: chosen } = state;
    const rows = map.queries.names, columns = map.keys.names;
    const { mean, largest, labelled, left, top, size, image, color } = drawCells(canvas, state, space, theme);
    const pen = prepare(canvas, space, top + size * rows.length + 34);
    pen.strokeStyle = theme.edge;
    pen.strokeRect(left, top, size * columns.length, size * rows.length);
    pen.drawImage(image, left, top, size * columns.length, size * rows.length);
    if (labelled) {
      pen.textAlign = "right";
      const marked = (n, which) => (side === which && n === index) || (chosen && chosen[which === "query" ? 0 : 1] === n);
      rows.forEach((name, n) => {
        pen.fillStyle = marked(n, "query") ? theme.accent : theme.ink;
        pen.fillText(shorten(pen, name, 110), left - 6, top + (n + 0.5) * size);
      });
      pen.textAlign = "left";
      columns.forEach((name, n) => {
        pen.save();
        pen.translate(left + (n + 0.5) * size, top - 6);
        pen.rotate(-Math.PI / 4);
        pen.fillStyle = marked(n, "key") ? theme.accent : theme.ink;
        pen.fillText(shorten(pen, name, 110), 0, 0);
        pen.restore();
      });
    } else {
      pen.fillStyle = theme.muted;
      pen.fillText(`${columns.length} tokens attended to →`, left, top - 10);
    }
    // what is selected
    pen.strokeStyle = theme.ink;
    pen.lineWidth = 1.5;
    if (side === "query") pen.strokeRect(left, top + index * size, size * columns.length, Math.max(size, 2));
    if (side === "key") pen.strokeRect(left + index * size, top, Math.max(size, 2), size * rows.length);
    if (chosen) pen.strokeRect(left + chosen[1] * size, top + chosen[0] * size, Math.max(size, 3), Math.max(size, 3));
    // the scale
    const y = top + size * rows.length + 14, step = 2;
    pen.fillStyle = color;
    for (let x = 0; x < 120; x += step) {
      pen.globalAlpha = Math.sqrt(x / 120);
      pen.fillRect(left + 26 + x, y, step, 10);
    }
    pen.globalAlpha = 1;
    pen.fillStyle = theme.muted;
    pen.textAlign = "left";
    pen.fillText("0", left + 14, y + 5);
    pen.fillText(`${(100 * largest).toFixed(largest < 0.1 ? 1 : 0)} %`, left + 152, y + 5);
    return (x, at) => {
      const key = Math.floor((x - left) / size), query = Math.floor((at - top) / size);
      const inside = key >= 0 && query >= 0 && key < columns.length && query < rows.length;
      return inside ? { query, key, weight: mean[query * columns.length + key] } : null;
    };
  }

  // Many small cells: each pixel shows the largest weight under it.
  function drawPooled(pen, values, rows, columns, size, shade) {
    const wide = Math.ceil(columns * size), high = Math.ceil(rows * size);
    const pooled = new Float32Array(wide * high);
    values.forEach((value, n) => {
      const at = Math.floor(Math.floor(n / columns) * size) * wide + Math.floor((n % columns) * size);
      pooled[at] = Math.max(pooled[at], value);
    });
    paintCells(pen, pooled, wide, { x: 0, y: 0, wide, high }, (value) => Math.max(0.03, shade(value)));
  }

  // Cells in the color of the pen, from 0 (nothing) to 1, as one image: much faster than rectangles.
  function paintCells(pen, values, across, box, shade) {
    const image = new ImageData(across, values.length / across), [red, green, blue] = readColor(pen.fillStyle);
    values.forEach((value, n) => {
      if (value) image.data.set([red, green, blue, Math.min(255, 255 * shade(value))], 4 * n);
    });
    const cells = document.createElement("canvas");
    cells.width = across;
    cells.height = image.height;
    cells.getContext("2d").putImageData(image, 0, 0);
    pen.globalAlpha = 1;
    pen.imageSmoothingEnabled = across > box.wide;  // cells that are smaller than a pixel
    pen.drawImage(cells, box.x, box.y, box.wide, box.high);
  }
  const known = new Map();
  function readColor(color) {
    if (!known.has(color)) {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 1;
      const pen = canvas.getContext("2d");
      pen.fillStyle = color;
      pen.fillRect(0, 0, 1, 1);
      known.set(color, [...pen.getImageData(0, 0, 1, 1).data]);
    }
    return known.get(color);
  }

  // A small picture of every layer and head; returns the layer and head at a point. Layers are rows,
  // unless there are many more of them than heads.
  function drawPictures(canvas, state, space, theme, asLines) {
    const { map, focus } = state, turned = map.layers.length > 1.3 * map.heads.length;
    const [rows, columns] = turned ? [map.heads, map.layers] : [map.layers, map.heads];
    const left = 58, top = 22, cell = Math.min(130, (space - left) / columns.length);
    const tall = Math.max(24, Math.min(cell, 96)), pad = Math.min(5, cell / 12);
    const pen = prepare(canvas, left + cell * columns.length, top + tall * rows.length);
    const count = map.queries.names.length, width = map.keys.names.length;
    pen.fillStyle = theme.muted;
    pen.textAlign = "right";
    pen.fillText(turned ? "layer" : "head", left - 6, 9);
    rows.forEach((name, n) => pen.fillText(`${n ? "" : turned ? "head " : "layer "}${name}`, left - 6, top + (n + 0.5) * tall));
    pen.textAlign = "center";
    columns.forEach((name, n) => pen.fillText(name, left + (n + 0.5) * cell, 9));
    for (let layer = 0; layer < map.layers.length; layer++)
      for (let head = 0; head < map.heads.length; head++) {
        const [row, column] = turned ? [head, layer] : [layer, head];
        const box = { x: left + column * cell + pad / 2, y: top + row * tall + pad / 2, wide: cell - pad, high: tall - pad };
        pen.globalAlpha = state.layers.includes(layer) && state.heads.includes(head) ? 0.2 : 0.07;
        pen.fillStyle = theme.muted;
        pen.fillRect(box.x, box.y, box.wide, box.high);
        drawPicture(pen, map, layer, head, count, width, box, theme.colors[head], asLines);
        pen.globalAlpha = 1;
        if (!focus || focus[0] !== layer || focus[1] !== head) continue;
        pen.strokeStyle = theme.ink;
        pen.lineWidth = 2;
        pen.strokeRect(box.x, box.y, box.wide, box.high);
      }
    return (x, y) => {
      const column = Math.floor((x - left) / cell), row = Math.floor((y - top) / tall);
      if (column < 0 || row < 0 || column >= columns.length || row >= rows.length) return null;
      return turned ? { layer: column, head: row } : { layer: row, head: column };
    };
  }

  // The largest weight in each cell of a small matrix; of a long text, as it is stored.
  function poolHead(map, layer, head, count, width, box) {
    if (map.pictures) {
      const { rows, columns, codes } = map.pictures, start = (layer * map.heads.length + head) * rows * columns;
      const pooled = Float32Array.from(codes.subarray(start, start + rows * columns), (code) => (code / 255) ** 2);
      return { pooled, across: columns };
    }
    const across = Math.min(width, Math.floor(box.wide)), down = Math.min(count, Math.floor(box.high));
    const first = (layer * map.heads.length + head) * count, { starts, keys, weights } = map.table;
    const pooled = new Float32Array(across * down);
    for (let query = 0; query < count; query++)
      for (let n = starts[first + query]; n < starts[first + query + 1]; n++) {
        const at = Math.floor((query * down) / count) * across + Math.floor((keys[n] * across) / width);
        pooled[at] = Math.max(pooled[at], weights[n]);
      }
    return { pooled, across };
  }

  function drawPicture(pen, map, layer, head, count, width, box, color, asLines) {
    const first = (layer * map.heads.length + head) * count, { starts, keys, weights } = map.table;
    const begin = starts[first], end = starts[first + count];
    pen.strokeStyle = pen.fillStyle = color;
    if (!asLines) {
      const { pooled, across } = poolHead(map, layer, head, count, width, box);
      paintCells(pen, pooled, across, box, Math.sqrt);
      return;
    }
    const floor = Math.max(0.04, findFloor(weights.slice(begin, end), MOST_SMALL));
    pen.lineWidth = 1;
    for (let query = 0; query < count; query++)
      for (let n = starts[first + query]; n < starts[first + query + 1]; n++) {
        if (weights[n] < floor) continue;
        pen.globalAlpha = Math.min(1, weights[n] + 0.04);
        pen.beginPath();
        pen.moveTo(box.x + 2, box.y + ((query + 0.5) * box.high) / count);
        pen.lineTo(box.x + box.wide - 2, box.y + ((keys[n] + 0.5) * box.high) / width);
        pen.stroke();
      }
  }

  // Query, keys and their products for one query; returns the key and dimension at a point.
  function drawVectors(canvas, state, rows, space, theme) {
    const { map, focus: [layer, head], query } = state;
    const { vectors } = map, d = vectors.size, tall = 22, names = 118, numbers = 150;
    const pen = prepare(canvas, space, 46 + tall * (rows.length + 1));
    const block = Math.max(d, (space - names - numbers - 40) / 2), size = block / d;
    const second = names + block + 20, third = second + block + 12;
    const q = vectors.query(layer, head, query);
    const all = rows.map(({ key }) => vectors.key(layer, head, query, key));
    const products = all.map((k) => k.map((one, n) => (one * q[n]) / Math.sqrt(d)));
    if (state.centred)  // the softmax does not change if the same number is subtracted from all
      for (let n = 0; n < d; n++) {
        const mean = products.reduce((sum, one) => sum + one[n], 0) / products.length;
        for (const one of products) one[n] -= mean;
      }
    const top = (list) => list.reduce((best, one) => one.reduce((a, b) => Math.max(a, Math.abs(b)), best), 1e-9);
    const limits = [top([q]), top(all), top(products)];
    const cells = (values, x, y, limit) =>
      values.forEach((value, n) => {
        pen.globalAlpha = Math.min(1, Math.abs(value) / limit);
        pen.fillStyle = value > 0 ? theme.positive : theme.negative;
        pen.fillRect(x + n * size, y + 2, Math.max(size - (size > 4 ? 0.6 : 0), 0.8), tall - 4);
      });
    const text = (words, x, y, color = theme.ink, align = "left") => {
      pen.globalAlpha = 1;
      pen.fillStyle = color;
      pen.textAlign = align;
      pen.fillText(words, x, y);
    };
    text("query q", names, 8, theme.muted);
    text(shorten(pen, map.queries.names[query], names - 14), names - 8, 18 + tall / 2, theme.ink, "right");
    cells(q, names, 18, limits[0]);
    text("keys k", names, 32 + tall, theme.muted);
    text(`products qᵢ·kᵢ/√d${state.centred ? " minus their mean" : ""}`, second, 32 + tall, theme.muted);
    text("sum", third + 36, 32 + tall, theme.muted, "right");
    text("softmax", third + 50, 32 + tall, theme.muted);
    rows.forEach(({ key, weight }, n) => {
      const y = 42 + tall * (n + 1);
      const on = state.cell && state.cell[1] === key;
      text(shorten(pen, map.keys.names[key], names - 14), names - 8, y + tall / 2, on ? theme.accent : theme.ink, "right");
      cells(all[n], names, y, limits[1]);
      cells(products[n], second, y, limits[2]);
      text(products[n].reduce((a, b) => a + b, 0).toFixed(2), third + 36, y + tall / 2, theme.ink, "right");
      pen.fillStyle = theme.colors[head];
      pen.globalAlpha = 0.85;
      pen.fillRect(third + 50, y + 5, 60 * weight, tall - 10);
      text(`${(100 * weight).toFixed(1)} %`, third + 54 + 60 * weight, y + tall / 2);
    });
    pen.globalAlpha = 1;
    return (x, y) => {
      const n = Math.floor((y - 42) / tall) - 1;
      if (n < 0 || n >= rows.length) return null;
      const start = x >= second ? second : names, i = Math.floor((x - start) / size);
      const inside = i >= 0 && i < d;
      return { key: rows[n].key, weight: rows[n].weight, i: inside ? i : null, q: q[i], k: all[n][i], product: products[n][i] };
    };
  }

  Object.assign(globalThis.clozeAttention, { drawLines, drawMatrix, drawPictures, drawVectors });
})();
