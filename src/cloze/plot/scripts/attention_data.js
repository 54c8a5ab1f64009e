// The weights and vectors of an attention figure, read from their compact form (attention_data.py).
// A table of weights has rows for all layers, heads and queries; row r has the keys
// keys[starts[r]] … keys[starts[r + 1] - 1] and their weights.
"use strict";
(() => {
  const STEP = 255;

  const readBytes = (text) => {
    const letters = atob(text), found = new Uint8Array(letters.length);
    for (let n = 0; n < letters.length; n++) found[n] = letters.charCodeAt(n);
    return found;
  };

  function readWeights(map) {
    const stored = map.weights;
    const counts = new Uint16Array(readBytes(stored.counts).buffer);
    const steps = readBytes(stored.steps), raw = readBytes(stored.codes);
    const codes = stored.bytes === 1 ? raw : new Uint16Array(raw.buffer);
    const scale = stored.bytes === 1 ? 255 : 65535;
    const starts = new Uint32Array(counts.length + 1);
    const keys = new Uint16Array(codes.length), weights = new Float32Array(codes.length);
    let step = 0, at = 0;
    for (let row = 0; row < counts.length; row++) {
      let key = -1;
      for (let n = 0; n < counts[row]; n++) {
        for (; !steps[step]; step++) key += STEP;
        key += steps[step++];
        keys[at] = key;
        weights[at] = (codes[at] / scale) ** 2;
        at++;
      }
      starts[row + 1] = at;
    }
    return { starts, keys, weights };
  }

  const makeSide = (stored) => ({ names: stored.tokens, sequences: stored.sequences });
  const makeWords = (stored) => ({
    names: stored.words.map((word) => word[0]),
    sequences: stored.words.map((word) => stored.sequences[word[1]] ?? null),
  });
  // For each token, the number of its word.
  const numberWords = (stored) => {
    const found = new Uint16Array(stored.tokens.length);
    stored.words.forEach(([, first, last], n) => found.fill(n, first, last));
    return found;
  };

  // One kind of attention, by token: { layers, heads, queries, keys, table, vectors }.
  function readMap(map) {
    return {
      name: map.name, layers: map.layers, heads: map.heads, colors: map.colors,
      queries: makeSide(map.queries), keys: makeSide(map.keys),
      table: readWeights(map), retained: map.weights.retained,
      vectors: map.vectors && readVectors(map.vectors),
      pictures: map.pictures && { ...map.pictures, codes: readBytes(map.pictures.codes) },
    };
  }

  // The same by word: weights of the tokens of a key are added, those of a query averaged.
  function mergeWords(tokens, map) {
    const queryWords = map.queries.words, keyWord = numberWords(map.keys);
    const queries = makeWords(map.queries), keys = makeWords(map.keys);
    const { table } = tokens, count = tokens.queries.names.length;
    const starts = [0], found = [], weights = [];
    const sums = new Float64Array(keys.names.length);
    for (let head = 0; head < tokens.layers.length * tokens.heads.length; head++)
      for (const [, first, last] of queryWords) {
        sums.fill(0);
        for (let n = table.starts[head * count + first]; n < table.starts[head * count + last]; n++)
          sums[keyWord[table.keys[n]]] += table.weights[n] / (last - first);
        sums.forEach((sum, key) => { if (sum) { found.push(key); weights.push(sum); } });
        starts.push(found.length);
      }
    const merged = { starts, keys: found, weights };
    return { ...tokens, queries, keys, table: merged, vectors: null, pictures: null };
  }

  // The mean of some layers: a table with rows for heads and queries.
  function meanLayers(map, layers) {
    const { table } = map, rows = map.heads.length * map.queries.names.length;
    if (layers.length === 1)
      return { starts: table.starts.slice(layers[0] * rows, (layers[0] + 1) * rows + 1), keys: table.keys, weights: table.weights };
    const starts = [0], found = [], weights = [];
    const sums = new Float64Array(map.keys.names.length);
    for (let row = 0; row < rows; row++) {
      sums.fill(0);
      for (const layer of layers)
        for (let n = table.starts[layer * rows + row]; n < table.starts[layer * rows + row + 1]; n++)
          sums[table.keys[n]] += table.weights[n] / layers.length;
      sums.forEach((sum, key) => { if (sum) { found.push(key); weights.push(sum); } });
      starts.push(found.length);
    }
    return { starts, keys: found, weights };
  }

  // Vectors: the numbers of one query or key of a head.
  function readVectors(stored) {
    const parts = {};
    for (const name of ["queries", "keys", "distances"]) {
      if (!stored[name]) continue;
      const values = new Int16Array(readBytes(stored[name].values).buffer);
      const { units } = stored[name], heads = units[0].length;
      const count = values.length / stored.size / units.length / heads;
      parts[name] = (layer, head, n) => {
        const at = Math.min(Math.max(n, 0), count - 1);
        const l = stored.layer === null ? layer : 0, start = ((l * heads + head) * count + at) * stored.size;
        return Float64Array.from(values.subarray(start, start + stored.size), (one) => one * units[l][head]);
      };
    }
    const key = (layer, head, query, n) => {
      const found = parts.keys(layer, head, n);
      if (parts.distances) parts.distances(layer, head, query - n).forEach((one, d) => { found[d] += one; });
      return found;
    };
    return { size: stored.size, layer: stored.layer, query: parts.queries, key };
  }

  // What a head does in this text, if one of a few patterns has most of its attention.
  function describeHead(map, layer, head) {
    const count = map.queries.names.length;
    const same = map.keys.names.length === count && map.keys.names.every((name, n) => name === map.queries.names[n]);
    const last = map.keys.names.length - 1;
    const sums = { "previous token": 0, "next token": 0, "same token": 0 };
    const ends = [0, 0];
    for (let query = 0; query < count; query++) {
      const row = (layer * map.heads.length + head) * count + query;
      for (let n = map.table.starts[row]; n < map.table.starts[row + 1]; n++) {
        const key = map.table.keys[n], weight = map.table.weights[n] / count;
        if (same && key === query - 1) sums["previous token"] += weight;
        if (same && key === query + 1) sums["next token"] += weight;
        if (same && key === query) sums["same token"] += weight;
        if (key === 0) ends[0] += weight;
        if (key === last) ends[1] += weight;
      }
    }
    const all = [...Object.entries(sums), [map.keys.names[0], ends[0]], [map.keys.names[last], ends[1]]];
    return all.reduce((best, one) => (one[1] > best[1] ? one : best), ["", 0]);
  }

  // The attention that the tokens of one text pay to the keys that the filter allows, on average.
  function sumBetween({ map, table, heads, allows }, text) {
    const rows = map.queries.sequences.flatMap((one, n) => (one === text ? [n] : []));
    let sum = 0;
    for (const head of heads)
      for (const query of rows) {
        const row = head * map.queries.names.length + query;
        for (let n = table.starts[row]; n < table.starts[row + 1]; n++)
          if (allows(query, table.keys[n])) sum += table.weights[n];
      }
    return sum / heads.length / Math.max(rows.length, 1);
  }

  globalThis.clozeAttention = { readMap, mergeWords, meanLayers, describeHead, sumBetween };
})();
