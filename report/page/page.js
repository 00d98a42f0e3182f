// The page's program. What comes from a recording is only ever set as text (textContent), never as markup.
(function () {
  'use strict';
  const $ = (id) => document.getElementById(id);
  const make = (tag, cls, text) => {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const fill = (parent, children) => parent.replaceChildren(...children);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  const mostRows = 400;

  let data = JSON.parse($('data').textContent);
  let node = null; // what is shown, decoded
  let cursor = null; // milliseconds since 1970
  let held = false;
  let range = null; // [from, to] where it is zoomed
  let kinds = new Set(); // that are not shown
  let charts = [];
  let drawing = false;

  // Times and amounts as text.
  const two = (n) => String(n).padStart(2, '0');
  const clock = (ms) => { const d = new Date(ms); return two(d.getUTCHours()) + ':' + two(d.getUTCMinutes()) + ':' + two(d.getUTCSeconds()); };
  const day = (ms) => new Date(ms).toISOString().slice(0, 10);
  const when = (ms) => (node && day(node.start) !== day(node.end) ? day(ms) + ' ' : '') + clock(ms);
  const number = (v, digits) => v === null || v === undefined ? '–' : v.toFixed(digits === undefined ? (Math.abs(v) < 10 ? 2 : 1) : digits);
  const coreTime = (s) => s < 3600 ? number(s, 0) + ' core-s' : number(s / 3600) + ' core-h';

  // decode makes columns and absolute times of a node's data.
  function decode(raw) {
    const n = { raw: raw, name: raw.name, start: raw.start, end: raw.start + raw.end, times: [], values: raw.values };
    let t = raw.start;
    for (const step of raw.times || []) { t += step; n.times.push(t); }
    const steps = (raw.times || []).slice(1).sort((a, b) => a - b);
    n.step = steps.length ? steps[Math.floor(steps.length / 2)] : 1000;
    n.reasons = (raw.reasons || []).map((r) => ({ at: raw.start + r[0], list: r.slice(1) }));
    n.cores = (raw.cores || []).map((r) => {
      const pools = [];
      for (let i = 1; i < r.length; i += 2) pools.push([raw.pools[r[i]], r[i + 1]]);
      return { at: raw.start + r[0], pools: pools };
    });
    n.events = raw.events.map((e) => ({ kind: e.kind, from: raw.start + e.from, to: raw.start + e.to, text: e.text }));
    n.pods = (raw.pods || []).map((p) => {
      const where = [];
      for (let i = 0; p.where && i < p.where.length; i += 2) where.push({ at: raw.start + p.where[i], text: raw.places[p.where[i + 1]] });
      return Object.assign({}, p, { places: where, from0: p.from });
    });
    return n;
  }

  // sentence puts a reason's numbers back into its pattern.
  function sentence(reason) {
    let i = 1;
    return node.raw.patterns[reason[0]].replace(/\u0001/g, () => reason[i++]);
  }

  // last is the index of the last element that is not later than a time, -1 where there is none.
  function last(list, at, timeOf) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (timeOf(list[middle]) <= at) low = middle + 1; else high = middle;
    }
    return low - 1;
  }
  const pointAt = (at) => Math.max(0, last(node.times, at, (t) => t));
  const value = (name, i) => node.values[name] ? node.values[name][i] : null;

  // What is drawn. A sum's areas are drawn one over the other.
  const definitions = [
    { title: 'CPU in use, cores', large: true, sum: ['services', 'batch', 'rest'], lines: ['capacity', 'servicesHigh'],
      labels: { services: 'services', batch: 'batch', rest: 'everything else', capacity: 'capacity', servicesHigh: 'services at most' } },
    { title: 'For batch, cores', large: true, sum: [], lines: ['free', 'offered', 'offeredLow', 'shadow', 'requested', 'batch', 'pool'], area: 'free',
      labels: { free: 'free', offered: 'offered', offeredLow: 'offered at least', shadow: 'the shadow would offer', requested: 'requested', batch: 'used by batch', pool: 'CPUs of the pool' } },
    { title: 'Memory, GiB', sum: [], lines: ['memory', 'memoryOffered', 'memoryAll'], area: 'memory', scale: 1 / 1024,
      labels: { memory: 'in use', memoryOffered: 'offered', memoryAll: 'all' } },
    { title: 'Waiting, percent', sum: [], lines: ['throttled', 'waiting'],
      labels: { throttled: 'batch throttled', waiting: 'some task waits for a CPU (PSI)' } },
  ];
  const colors = { services: 'services', batch: 'batch', rest: 'rest', capacity: 'capacity', servicesHigh: 'pool', free: 'free', offered: 'offered',
    offeredLow: 'offered', shadow: 'shadow', requested: 'requested', pool: 'pool', memory: 'services', memoryOffered: 'offered', memoryAll: 'capacity',
    throttled: 'mark', waiting: 'services' };
  const dashed = { capacity: [6, 4], servicesHigh: [2, 2], offeredLow: [2, 2], memoryAll: [6, 4], pool: [2, 3], shadow: [8, 3] };

  function columnsOf(d) {
    return { sum: d.sum.filter((s) => node.values[s]), lines: d.lines.filter((s) => node.values[s]) };
  }

  // rowsOf are the rows of a chart; a gap of several steps breaks its lines.
  function rowsOf(d, columns) {
    const rows = [], scale = d.scale || 1, width = columns.sum.length + columns.lines.length;
    for (let i = 0; i < node.times.length; i++) {
      if (i > 0 && node.times[i] - node.times[i - 1] > 5 * node.step) {
        rows.push([new Date(node.times[i - 1] + node.step)].concat(new Array(width).fill(null)));
      }
      const row = [new Date(node.times[i])];
      let total = 0;
      for (const s of columns.sum) {
        const v = node.values[s][i];
        total = v === null || total === null ? null : total + v;
        row.push(total);
      }
      for (const s of columns.lines) {
        const v = node.values[s][i];
        row.push(v === null ? null : v * scale);
      }
      rows.push(row);
    }
    return rows;
  }

  function underlay(canvas, area, g) {
    canvas.save();
    for (const e of node.events) {
      if (e.kind !== 'squeeze' && e.kind !== 'eviction' && e.kind !== 'no offer') continue;
      const a = g.toDomXCoord(e.from), b = Math.max(g.toDomXCoord(e.to), a + 1.5);
      if (b < area.x || a > area.x + area.w) continue;
      if (e.kind === 'eviction') {
        canvas.fillStyle = color('mark');
        canvas.fillRect(a, area.y, 1.5, area.h);
      } else {
        canvas.fillStyle = color('squeeze');
        canvas.fillRect(Math.max(a, area.x), area.y, Math.min(b, area.x + area.w) - Math.max(a, area.x), area.h);
      }
    }
    canvas.restore();
  }

  // updateCharts draws new values in the charts that are there; false where others are needed.
  function updateCharts() {
    if (!charts.length || charts.some((c) => { const now = columnsOf(c.d); return now.sum.concat(now.lines).join() !== c.names.join(); })) return false;
    drawing = true;
    for (const c of charts) c.graph.updateOptions({ file: rowsOf(c.d, c.columns), dateWindow: range });
    drawing = false;
    return true;
  }

  function buildCharts() {
    for (const c of charts) c.graph.destroy();
    charts = [];
    const parts = [];
    for (const d of definitions) {
      const columns = columnsOf(d);
      const names = columns.sum.concat(columns.lines);
      if (!names.some((s) => node.values[s].some((v) => v !== null && v !== 0)) && d.title.startsWith('Waiting')) continue;
      if (!names.length) continue;
      const card = make('section', 'card'), head = make('div', 'head'), legend = make('span', 'legend');
      head.append(make('h2', '', d.title), legend);
      const plot = make('div', 'plot' + (d.large ? ' large' : '')), holder = make('div', 'chart'), line = make('div', 'cursor');
      plot.append(holder, line);
      card.append(head, plot);
      const values = {};
      for (const s of names) {
        const item = make('span'), mark = make('i', columns.sum.includes(s) || d.area === s ? '' : 'stroke');
        mark.style.background = color(colors[s]);
        values[s] = make('b', '', '');
        item.append(mark, document.createTextNode(d.labels[s] + ' '), values[s]);
        legend.append(item);
      }
      parts.push({ d: d, columns: columns, names: names, card: card, holder: holder, line: line, values: values });
    }
    fill($('charts'), parts.filter((p) => p.d.large).map((p) => p.card)); // the map of the cores stands between them
    fill($('more'), parts.filter((p) => !p.d.large).map((p) => p.card));
    for (const p of parts) {
      const series = {};
      for (const s of p.names) {
        const area = p.columns.sum.includes(s) || p.d.area === s;
        series[p.d.labels[s]] = { fillGraph: area, strokeWidth: area ? 0.5 : dashed[s] ? 1.2 : 1.8, strokePattern: dashed[s] || null, color: color(colors[s]) };
      }
      p.graph = new Dygraph(p.holder, rowsOf(p.d, p.columns), {
        labels: ['time'].concat(p.names.map((s) => p.d.labels[s])), labelsUTC: true, legend: 'never', series: series,
        fillAlpha: p.columns.sum.length ? 0.95 : 0.2, includeZero: true, dateWindow: range, gridLineColor: color('line'), axisLineColor: color('line'),
        axes: { y: { axisLabelWidth: 40 }, x: { axisLabelWidth: 62 } }, highlightCircleSize: 0, xRangePad: 0, animatedZooms: false,
        underlayCallback: underlay,
        highlightCallback: (event, x) => { if (!held) setCursor(x); },
        clickCallback: (event, x) => { held = true; setCursor(x); },
        drawCallback: (g, initial) => { if (!initial) zoomed(g); },
      });
      charts.push(p);
    }
  }

  // zoomed has all charts show the time that one of them was zoomed to.
  function zoomed(g) {
    if (drawing) return;
    const shown = g.xAxisRange(), whole = [node.times[0], node.times[node.times.length - 1]];
    range = shown[0] <= whole[0] && shown[1] >= whole[1] ? null : shown;
    redraw(g);
  }

  function redraw(except) {
    drawing = true;
    for (const c of charts) if (c.graph !== except) c.graph.updateOptions({ dateWindow: range });
    drawing = false;
    drawMap();
    placeCursor();
    showRange();
  }

  // showRange names the part of the time that is shown, and offers the whole of it.
  function showRange() {
    $('reset').disabled = range === null;
    $('reset').textContent = range === null ? 'Whole time' : 'Whole time (now ' + when(range[0]) + ' to ' + when(range[1]) + ')';
  }

  // The map of the cores: a row a CPU, over time.
  const classOf = (pool) => pool === 'share' || pool === 'reclaim' || pool === 'reserve' ? pool : pool.startsWith('dedicated/') ? 'dedicated' : 'other';
  const poolColors = { share: 'services', reclaim: 'batch', reserve: 'reserve', dedicated: 'dedicated', other: 'other' };
  const rank = ['reclaim', 'other', 'share', 'reserve', 'dedicated']; // a CPU in several is drawn as the narrower claim

  function listOf(text) {
    const ids = [];
    for (const part of text.split(',')) {
      const ends = part.split('-').map(Number);
      for (let id = ends[0]; id <= (ends.length > 1 ? ends[1] : ends[0]); id++) ids.push(id);
    }
    return ids;
  }

  // runsOf are, for each CPU, the times in which it was in one class of pool.
  function runsOf() {
    const runs = new Map(), open = new Map();
    for (const c of node.raw.cpus || []) runs.set(c[0], []);
    const end = (id, at) => { const o = open.get(id); if (o && o[1]) runs.get(id).push([o[0], at, o[1]]); };
    for (const change of node.cores) {
      const now = new Map();
      for (const [pool, list] of change.pools) {
        const c = classOf(pool);
        for (const id of listOf(list)) if (!now.has(id) || rank.indexOf(now.get(id)) < rank.indexOf(c)) now.set(id, c);
      }
      for (const id of runs.keys()) {
        const c = now.get(id) || '';
        if (!open.has(id) || open.get(id)[1] !== c) { end(id, change.at); open.set(id, [change.at, c]); }
      }
    }
    for (const id of runs.keys()) end(id, node.end + node.step);
    return runs;
  }

  let rows = []; // [top, height, cpu, numa] of the map

  function drawMap() {
    const shown = node.cores.some((c) => c.pools.length) && (node.raw.cpus || []).length > 0 && charts.length > 0;
    $('cores').hidden = !shown;
    if (!shown) return;
    node.runs = node.runs || runsOf();
    const canvas = $('map'), area = charts[0].graph.getArea(), dpr = window.devicePixelRatio || 1, all = node.raw.cpus;
    const height = Math.max(2, Math.min(9, Math.floor(300 / all.length)));
    rows = [];
    let top = 0, numa = all[0][2];
    for (const c of all) {
      if (c[2] !== numa) { top += 5; numa = c[2]; }
      rows.push([top, height, c[0], numa]);
      top += height;
    }
    const width = canvas.clientWidth;
    canvas.style.height = top + 'px';
    canvas.width = Math.round(width * dpr);
    canvas.height = Math.round(top * dpr);
    const c2 = canvas.getContext('2d');
    c2.scale(dpr, dpr);
    c2.clearRect(0, 0, width, top);
    const x = (t) => Math.min(Math.max(charts[0].graph.toDomXCoord(t), area.x), area.x + area.w);
    const palette = {};
    for (const c of rank) palette[c] = color(poolColors[c]);
    c2.font = '10px system-ui, sans-serif';
    for (const [y, h, id] of rows) {
      c2.fillStyle = color('none');
      c2.fillRect(area.x, y, area.w, h > 3 ? h - 1 : h);
      for (const [from, to, c] of node.runs.get(id)) {
        const a = x(from), b = x(to);
        if (b > a) { c2.fillStyle = palette[c]; c2.fillRect(a, y, b - a, h > 3 ? h - 1 : h); }
      }
    }
    c2.fillStyle = color('dim');
    let before = null;
    for (const [y, h, id, numaNode] of rows) {
      if (numaNode !== before) { c2.fillText('node ' + numaNode, 2, y + 9); before = numaNode; }
    }
    fill($('coreslegend'), rank.slice().reverse().filter((c) => node.cores.some((s) => s.pools.some((p) => classOf(p[0]) === c))).map((c) => {
      const item = make('span'), mark = make('i');
      mark.style.background = palette[c];
      item.append(mark, document.createTextNode(c));
      return item;
    }));
  }

  function onMap(event) {
    const box = $('map').getBoundingClientRect();
    const t = charts[0].graph.toDataXCoord(event.clientX - box.left), y = event.clientY - box.top;
    const hit = rows.find((r) => y >= r[0] && y < r[0] + r[1]);
    if (hit) {
      const i = last(node.cores, t, (c) => c.at);
      const pools = i < 0 ? [] : node.cores[i].pools.filter((p) => listOf(p[1]).includes(hit[2])).map((p) => p[0]);
      $('cpu').textContent = 'CPU ' + hit[2] + ': ' + (pools.join(', ') || 'no pool');
    }
    return Math.min(Math.max(t, node.start), node.end);
  }

  // The cursor, and what was at its time.
  let planned = false;
  function setCursor(at) {
    cursor = at;
    placeCursor();
    if (!planned) {
      planned = true;
      requestAnimationFrame(() => { planned = false; showCursor(); });
    }
  }

  function placeCursor() {
    for (const c of charts) place(c.line, c.graph);
    if (charts.length) place(document.querySelector('.map .cursor'), charts[0].graph);
  }

  function place(line, graph) {
    const area = graph.getArea(), x = cursor === null ? -1 : graph.toDomXCoord(cursor);
    line.hidden = x < area.x || x > area.x + area.w;
    line.style.left = x + 'px';
  }

  const useAt = (p, at) => {
    const i = Math.floor((at - node.raw.start - (node.raw.base || 0)) / node.raw.stretch) - p.from;
    if (!(i >= 0 && i < p.use.length)) return null;
    return p.use[i] !== null ? p.use[i] : i > 0 ? p.use[i - 1] : null; // a late tick leaves a stretch out
  };
  const placeAt = (p, at) => { const i = last(p.places, at, (w) => w.at); return i < 0 ? '' : p.places[i].text; };
  const isThere = (p, at) => at >= node.raw.start + p.first - node.step && at <= node.raw.start + p.last + node.step;

  function showCursor() {
    if (cursor === null) return;
    const i = pointAt(cursor);
    $('at').textContent = (held ? 'Held at ' : 'At ') + when(node.times[i]);
    $('pin').textContent = held ? 'Let go (Esc)' : 'Hold';
    const facts = [];
    const add = (name, key, unit, scale) => {
      const v = value(key, i);
      if (v === null || v === undefined) return;
      facts.push(make('dt', 'dim', name), make('dd', '', number(v * (scale || 1)) + unit));
    };
    add('services used', 'services', ' cores');
    add('batch used', 'batch', ' cores');
    add('everything else', 'rest', ' cores');
    add('free for batch', 'free', ' cores');
    add('offered', 'offered', ' cores');
    add('the shadow would offer', 'shadow', ' cores');
    add('requested', 'requested', ' cores');
    add('memory offered', 'memoryOffered', ' GiB', 1 / 1024);
    add('batch throttled', 'throttled', ' %');
    add('load of a minute', 'load', '');
    fill($('figures'), facts);
    for (const c of charts) for (const s of c.names) c.values[s].textContent = number(value(s, i) === null ? null : value(s, i) * (c.d.scale || 1));
    const happening = node.events.filter((e) => e.from <= cursor + node.step / 2 && e.to >= cursor - node.step / 2).slice(0, 8);
    fill($('happening'), happening.length ? [make('h3', '', 'Happening')].concat(happening.map((e) => make('div', '', e.text))) : []);
    const r = last(node.reasons, cursor, (x) => x.at);
    $('whyhead').textContent = "Why (advise's reasons)" + (r >= 0 && cursor - node.reasons[r].at > 60000 ? ', unchanged since ' + when(node.reasons[r].at) : '');
    fill($('why'), r < 0 ? [make('li', 'dim', 'none is known')] : node.reasons[r].list.length ? node.reasons[r].list.map((x) => make('li', '', sentence(x))) : [make('li', 'dim', 'none: nothing bound the result')]);
    const k = last(node.cores, cursor, (c) => c.at);
    const pools = k < 0 ? [] : node.cores[k].pools;
    fill($('poolsnow'), pools.length ? [make('h3', '', 'Pools')].concat(pools.map((p) => make('div', '', p[0] + ': ' + listOf(p[1]).length + ' CPUs (' + p[1] + ')'))) : []);
    const then = node.pods.filter((p) => isThere(p, cursor)).map((p) => [p, useAt(p, cursor)]).sort((a, b) => (b[1] || 0) - (a[1] || 0)).slice(0, 15);
    fill($('then'), then.map(([p, use]) => {
      const tr = make('tr');
      tr.append(make('td', 'text', p.name), make('td', 'dim', p.class), make('td', 'number', number(use)));
      return tr;
    }));
    for (const row of podRows) {
      row.use.textContent = isThere(row.pod, cursor) ? number(useAt(row.pod, cursor)) : '';
      row.where.textContent = placeAt(row.pod, cursor);
    }
    for (const row of eventRows) row.tr.classList.toggle('now', row.event.from <= cursor && row.event.to >= cursor);
  }

  // Search, and the tables.
  let podRows = [], eventRows = [];
  const words = () => $('search').value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (text, all) => { const low = text.toLowerCase(); return all.every((w) => low.includes(w)); };

  function showTables() {
    const all = words();
    const pods = node.pods.filter((p) => matches(p.name + ' ' + p.class + ' ' + (p.state || ''), all));
    const events = node.events.filter((e) => !kinds.has(e.kind) && matches(e.kind + ' ' + e.text, all));
    podRows = pods.slice(0, mostRows).map(podRow);
    fill($('pods'), podRows.map((r) => r.tr));
    eventRows = events.slice(0, mostRows).map(eventRow);
    fill($('events'), eventRows.length ? eventRows.map((r) => r.tr) : [nothing()]);
    $('podcount').textContent = pods.length + (pods.length > mostRows ? ', the first ' + mostRows + ' are shown' : '');
    $('eventcount').textContent = events.length + (events.length > mostRows ? ', the first ' + mostRows + ' are shown' : '');
    let text = '';
    if (all.length) {
      text = pods.length + ' pods, ' + events.length + ' events';
      const i = node.reasons.findIndex((r) => r.list.some((x) => matches(sentence(x), all)));
      if (i >= 0) text += ', a reason first at ' + when(node.reasons[i].at);
    }
    $('found').textContent = text;
  }

  function nothing() {
    const tr = make('tr'), td = make('td', 'dim', 'Nothing.');
    td.colSpan = 3;
    tr.append(td);
    return tr;
  }

  function eventRow(e) {
    const tr = make('tr', 'event'), kind = make('td');
    kind.append(make('span', 'kind ' + (/^[a-z]+$/.test(e.kind) ? e.kind : ''), e.kind));
    tr.append(make('td', 'number', when(e.from)), kind, make('td', 'text', e.text));
    tr.addEventListener('click', () => go(e.from));
    return { tr: tr, event: e };
  }

  function podRow(p) {
    const tr = make('tr'), name = make('td', 'text', p.name), use = make('td', 'number'), where = make('td', 'text'), spark = make('td', 'wide');
    if (p.state) name.append(document.createTextNode(' '), make('span', 'state', p.state));
    const canvas = make('canvas');
    spark.append(canvas);
    drawSpark(canvas, p);
    tr.append(name, make('td', 'dim', p.class), make('td', 'number', coreTime(p.seconds)), make('td', 'number', number(p.peak)), use, spark,
      make('td', 'wide number', when(node.raw.start + p.first) + '–' + when(node.raw.start + p.last)), where);
    return { tr: tr, pod: p, use: use, where: where };
  }

  function drawSpark(canvas, p) {
    const width = 150, height = 22, dpr = window.devicePixelRatio || 1;
    canvas.width = width * dpr;
    canvas.height = height * dpr;
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    const c = canvas.getContext('2d'), span = Math.max(node.end - node.start, 1), most = Math.max(p.peak, 0.001);
    c.scale(dpr, dpr);
    c.fillStyle = color(p.class === 'reclaimed' ? 'batch' : 'services');
    const step = Math.max(1, node.raw.stretch / span * width);
    p.use.forEach((v, i) => {
      if (v === null && i > 0) v = p.use[i - 1];
      if (v === null) return;
      const x = ((p.from + i) * node.raw.stretch + (node.raw.base || 0)) / span * width, h = Math.max(1, v / most * height);
      c.fillRect(x, height - h, step, h);
    });
  }

  function showKinds() {
    const there = [...new Set(node.events.map((e) => e.kind))];
    fill($('kinds'), there.length < 2 ? [] : there.map((k) => {
      const label = make('label'), box = make('input');
      box.type = 'checkbox';
      box.checked = !kinds.has(k);
      box.addEventListener('change', () => { if (box.checked) kinds.delete(k); else kinds.add(k); showTables(); showCursor(); });
      label.append(box, document.createTextNode(' ' + k));
      return label;
    }));
  }

  // go holds the cursor at a time and has the charts show it.
  function go(at) {
    held = true;
    if (range && (at < range[0] || at > range[1])) {
      const half = (range[1] - range[0]) / 2;
      range = [at - half, at + half];
      redraw(null);
    }
    setCursor(node.times[pointAt(at)]);
  }

  function nextEvent() {
    const now = cursor === null ? -1 : cursor;
    const next = node.events.find((e) => !kinds.has(e.kind) && node.times[pointAt(e.from)] > now) || node.events.find((e) => !kinds.has(e.kind));
    if (next) go(next.from);
  }

  function show(index) {
    const empty = !data.nodes.length || !(data.nodes[index].times || []).length;
    $('empty').hidden = !empty;
    $('all').hidden = empty;
    if (empty) return;
    const before = node;
    node = decode(data.nodes[index]);
    const same = before && before.name === node.name;
    if (!same) { range = null; held = false; cursor = null; kinds = new Set(); }
    document.title = node.name + ' – Polder';
    $('title').textContent = node.name;
    $('period').textContent = day(node.start) + ' ' + clock(node.start) + ' to ' + (day(node.end) !== day(node.start) ? day(node.end) + ' ' : '') + clock(node.end) +
      ' UTC, ' + node.raw.ticks + ' ticks' + (node.raw.policy ? ', policy ' + node.raw.policy : '') + (node.raw.shadow ? ', shadow ' + node.raw.shadow : '');
    const notes = (data.notes || []).concat(node.raw.notes || []);
    if ((data.inserted || []).length) {
      notes.unshift('The recording has no ' + data.inserted.join(' and no ') + ': the page shows what the tools decide now, with their default settings, and not what was done then.');
    }
    fill($('notes'), notes.map((n) => make('li', '', n)));
    fill($('facts'), node.raw.summary.map((f) => {
      const e = make('div', 'fact');
      e.append(make('b', '', f.value), make('span', '', f.name));
      return e;
    }));
    if (!same || !updateCharts()) buildCharts();
    drawMap();
    showKinds();
    showTables();
    if (cursor === null || (data.live && !held)) cursor = node.times[node.times.length - 1];
    placeCursor();
    showRange();
    showCursor();
  }

  function showNodes() {
    const select = $('node'), chosen = node ? Math.max(0, data.nodes.findIndex((n) => n.name === node.name)) : 0;
    select.hidden = data.nodes.length < 2;
    fill(select, data.nodes.map((n) => make('option', '', n.name)));
    select.selectedIndex = chosen;
    show(chosen);
  }

  $('node').addEventListener('change', () => show($('node').selectedIndex));
  $('search').addEventListener('input', () => { showTables(); showCursor(); });
  $('reset').addEventListener('click', () => { range = null; redraw(null); });
  $('next').addEventListener('click', nextEvent);
  $('pin').addEventListener('click', () => { held = !held; showCursor(); });
  $('map').addEventListener('mousemove', (e) => { const t = onMap(e); if (!held) setCursor(t); });
  $('map').addEventListener('mouseleave', () => { $('cpu').textContent = ''; });
  $('map').addEventListener('click', (e) => { held = true; setCursor(onMap(e)); });
  document.addEventListener('keydown', (e) => {
    if (!node || e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target instanceof HTMLInputElement && e.target.type === 'search';
    if (e.key === 'Escape') { if (typing) e.target.blur(); held = false; showCursor(); return; }
    if (typing || e.target instanceof HTMLSelectElement) return;
    if (e.key === '/') { e.preventDefault(); $('search').focus(); }
    if (e.key === 'e') nextEvent();
    if (e.key === 'ArrowLeft' || e.key === 'ArrowRight') {
      e.preventDefault();
      const step = (e.shiftKey ? 10 : 1) * (e.key === 'ArrowLeft' ? -1 : 1);
      go(node.times[Math.min(Math.max(pointAt(cursor) + step, 0), node.times.length - 1)]);
    }
  });
  let resizing = 0;
  window.addEventListener('resize', () => { clearTimeout(resizing); resizing = setTimeout(() => { if (node) { drawMap(); placeCursor(); } }, 100); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (node) { charts.forEach((c) => c.graph.destroy()); charts = []; show(Math.max(0, $('node').selectedIndex)); } });
  showNodes();

  if (data.live) {
    const source = new EventSource('events');
    source.addEventListener('state', (e) => { data = JSON.parse(e.data); showNodes(); $('live').textContent = '● live'; });
    source.addEventListener('end', () => { source.close(); $('live').textContent = 'the stream has ended'; });
    source.onerror = () => { $('live').textContent = 'no connection: the page stands still'; };
  }
})();
