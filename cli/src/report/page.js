"use strict";
// Shows the contents of the element `data`. Texts of the recording are inserted as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
const COLOURS = ["#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f"];
const NOT_VALID = "rgba(220, 38, 38, 0.22)";
const PARTLY_VALID = "rgba(220, 38, 38, 0.10)";
const plots = [];

function add(parent, tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
}

// Formats a number with up to three significant digits, as the command does.
function figure(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9) return value.toExponential(2);
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.9995) return value.toFixed(2);
  if (size >= 0.0005) return value.toFixed(3);
  return value.toExponential(1);
}

const whole = (value) => (value === null || value === undefined ? "–" : String(value));

// Adds a table. A `<` before a heading marks a column of text.
function table(parent, headings, rows) {
  const element = add(add(parent, "div", null, "scroll"), "table");
  const isText = headings.map((heading) => heading.startsWith("<"));
  const head = add(element, "tr");
  headings.forEach((heading, i) => add(head, "th", heading.replace(/^</, ""), isText[i] ? "text" : ""));
  for (const cells of rows) {
    const row = add(element, "tr");
    cells.forEach((cell, i) => add(row, "td", cell, isText[i] ? "text" : ""));
  }
  return element;
}

function width() {
  return Math.max(320, main.clientWidth - 40);
}

// Each of `series` has a name, values, and optionally a colour and a dash. `options.under` draws below the lines.
function plot(parent, times, series, options) {
  const place = add(parent, "div");
  const wide = () => Math.min(width(), options.width || Infinity);
  const it = new uPlot({
    width: wide(),
    height: options.height || 150,
    cursor: { sync: options.sync ? { key: options.sync } : undefined, drag: { x: true, y: false } },
    legend: { live: !options.bars, show: !options.bars },
    scales: { x: { time: false }, y: options.fromZero ? { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] } : {} },
    axes: [
      { values: options.ticks, size: 34, splits: options.splits, grid: { stroke: "#eee" } },
      { size: 62, grid: { stroke: "#eee" }, label: options.unit, labelSize: 18, labelFont: "12px system-ui", font: "11px system-ui" },
    ],
    series: [
      { label: options.x || "s", value: (u, value) => (value === null ? "–" : value.toFixed(3)) },
      ...series.map((of, i) => ({
        label: of.name,
        stroke: of.colour || COLOURS[i % COLOURS.length],
        dash: of.dash,
        width: 1.2,
        fill: options.bars ? "rgba(37, 99, 235, 0.35)" : undefined,
        paths: options.bars ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: options.bars ? { show: false } : undefined,
        value: (u, value) => figure(value),
      })),
    ],
    hooks: { drawClear: [(u) => options.under && options.under(u)] },
  }, [times, ...series.map((of) => of.values)], place);
  plots.push([it, wide]);
}

// Shades where a stream is not valid, and marks where the epoch goes up.
function shade(times, valid, epochs) {
  return (u) => {
    const { ctx, bbox } = u;
    const x = (value) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, u.valToPos(value, "x", true)));
    ctx.save();
    if (valid) {
      for (let i = 0; i < times.length; i++) {
        if (valid[i] === null || valid[i] === 1) continue;
        // A shade reaches half way to the neighbours.
        const from = i > 0 ? (times[i - 1] + times[i]) / 2 : times[i];
        const to = i + 1 < times.length ? (times[i] + times[i + 1]) / 2 : times[i];
        const left = x(from);
        ctx.fillStyle = valid[i] === 0 ? NOT_VALID : PARTLY_VALID;
        ctx.fillRect(left, bbox.top, Math.max(1, x(to) - left), bbox.height);
      }
    }
    ctx.strokeStyle = "#111";
    ctx.setLineDash([4, 4]);
    for (const { at_s: at } of epochs) {
      if (at < u.scales.x.min || at > u.scales.x.max) continue;
      ctx.beginPath();
      ctx.moveTo(x(at), bbox.top);
      ctx.lineTo(x(at), bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };
}

// If a pair of points covers several times, the first has the least values and the second the greatest. The pair is not valid if
// both are 0, and partly valid if only the first is 0.
function validity(values, isPaired) {
  if (!isPaired) return values;
  const shown = values.slice();
  for (let i = 0; i + 1 < values.length; i++) {
    if (values[i] === null || values[i + 1] === null) continue;
    if (values[i] === 0 && values[i + 1] === 1) shown[i] = shown[i + 1] = 0.5;
    i++;
  }
  return shown;
}

function heading(output) {
  return output.is_computed ? `${output.name}, as the configuration makes it` : `${output.name}, as recorded`;
}

function summary(parent, of) {
  const refused = of.refused > 0 ? `, ${of.refused} requests refused` : "";
  add(parent, "p", `${of.output}: ${of.count} observations, ${figure(of.rate_hz)} Hz, ${whole(of.fewest_in_a_second)} in the emptiest second, ` +
    `${whole(of.missed)} missed, ${of.late_samples} late samples, epoch ${of.epoch}${refused}`);
  const rows = of.streams.map((stream) => {
    const age = stream.age_ms || {};
    return [stream.name, figure(stream.valid * 100), figure(age.p50), figure(age.p99), figure(age.max)];
  });
  table(parent, ["<stream", "valid %", "age p50", "p99", "max ms"], rows);
}

// Says what a point of a stretch stands for.
function grain(stretch) {
  return stretch.width_s > 0
    ? `Two points stand for up to ${figure(stretch.width_s * 1000)} ms: the least and the greatest value in it.`
    : "Each value is drawn.";
}

function stretchesOf(parent, output, draw) {
  output.stretches.forEach((stretch, i) => {
    if (output.stretches.length > 1) add(parent, "h3", `Part ${i + 1}, from ${figure(stretch.times_s[0])} s: a clock was set`);
    draw(stretch, `${output.name} ${output.is_computed} ${i}`);
    add(parent, "p", grain(stretch), "note");
  });
  if (output.stretches_left_out > 0) add(parent, "p", `${output.stretches_left_out} more parts, after clocks were set, are not drawn.`, "note");
}

function lines(lane, stretch) {
  const first = lane.column + (lane.is_observed ? 2 : 0);
  return lane.channels.map((name, i) => ({ name, values: stretch.columns[first + i] }));
}

function traces(parent, output) {
  add(parent, "h3", heading(output));
  if (output.epochs.length > 0) {
    add(parent, "p", `The epoch goes up ${output.epochs.length} times, at ${output.epochs.slice(0, 8).map((of) => `${figure(of.at_s)} s`).join(", ")}: dashed lines.`);
  }
  stretchesOf(parent, output, (stretch, sync) => {
    for (const lane of output.lanes) {
      const some = lane.channels.length < lane.all_channels ? `, the first ${lane.channels.length} of ${lane.all_channels} channels` : "";
      add(parent, "h3", lane.name + some);
      const valid = lane.is_observed ? validity(stretch.columns[lane.column], stretch.width_s > 0) : null;
      const drawn = lane.channels.length > 0 ? lines(lane, stretch) : [{ name: "valid", values: stretch.columns[lane.column] }];
      plot(parent, stretch.times_s, drawn, { sync, under: shade(stretch.times_s, valid, output.epochs) });
    }
  });
}

// Draws channels of several streams in one chart: a line for each part of a channel.
function chosen(parent, channels) {
  const parts = channels.flatMap(({ name, stretches }) => stretches.map((stretch, i) => ({ name: i > 0 ? `${name}, part ${i + 1}` : name, stretch })));
  const tables = parts.map(({ stretch }) => [stretch.times_s, stretch.columns[0]]);
  // Mode 2: a missing value of a line is missing at the times of other lines, too.
  const [times, ...values] = uPlot.join(tables, tables.map(() => [0, 2]));
  plot(parent, times, parts.map(({ name }, i) => ({ name, values: values[i] })), { height: 300 });
  const widest = parts.reduce((widest, { stretch }) => (stretch.width_s > widest.width_s ? stretch : widest), parts[0].stretch);
  add(parent, "p", grain(widest), "note");
}

function ages(parent, output) {
  const lanes = output.lanes.filter((lane) => lane.is_observed);
  if (lanes.length === 0) return;
  add(parent, "h3", heading(output));
  stretchesOf(parent, output, (stretch, sync) => {
    for (const lane of lanes) {
      const limit = lane.max_age_ms;
      add(parent, "h3", limit === null ? lane.name : `${lane.name}, max_age_ms ${limit}`);
      const drawn = [{ name: "age ms", values: stretch.columns[lane.column + 1] }];
      if (limit !== null) drawn.push({ name: "max_age_ms", values: stretch.times_s.map(() => limit), colour: "#dc2626", dash: [6, 4] });
      plot(parent, stretch.times_s, drawn, { sync, height: 110, fromZero: true, unit: "ms", under: shade(stretch.times_s, null, output.epochs) });
    }
  });
}

// Draws a histogram. Bar i counts times from 10^(i / 10) us up to the next bar.
function histogram(parent, name, of, spread) {
  if (!spread) return;
  const place = add(parent, "div");
  add(place, "h3", name);
  add(place, "p", `p50 ${figure(spread.p50)}, p99 ${figure(spread.p99)}, max ${figure(spread.max)} ms` +
    (of.below > 0 ? `; ${of.below} of less than 1 µs are not drawn` : ""));
  const first = of.bars.findIndex((count) => count > 0);
  if (first < 0) return;
  const from = Math.floor(first / 10) * 10;
  const to = Math.ceil(of.bars.length / 10) * 10;
  const times = [];
  const counts = [];
  for (let i = from; i <= to; i++) {
    times.push(i / 10 - 3);
    counts.push(of.bars[i] || 0);
  }
  plot(place, times, [{ name: "observations", values: counts }], {
    bars: true, fromZero: true, width: 370, x: "ms",
    splits: (u, axis, low, high) => Array.from({ length: Math.floor(high) - Math.ceil(low) + 1 }, (_, i) => Math.ceil(low) + i),
    ticks: (u, values) => values.map((value) => `${Number((10 ** value).toPrecision(1))} ms`),
  });
}

function show() {
  const { figures } = data;
  const { trial, info } = figures;
  add(main, "h1", "robocache report");
  add(main, "p", data.config ? `${figures.recording} by ${data.config.file}` : figures.recording, "note");
  add(main, "p", figures.verdict, trial ? `verdict ${trial.works ? "yes" : "no"}` : "verdict");
  for (const of of trial ? trial.observations : []) summary(main, of);
  for (const found of figures.offsets) add(main, "p", `clocks: ${found.text}`, "note");
  if (figures.recorded.length > 0) add(main, "h3", "As recorded");
  for (const of of figures.recorded) summary(main, of);

  add(main, "h2", "Over time");
  add(main, "p", `Times count from the first stamp of the recording, ${data.origin_ns} ns. Red is not valid: nothing is drawn there. Pale red is not valid for a part of the time. ` +
    "A line ends at a gap. Drag to look closer, click twice to go back.", "note");
  if (data.channels.length > 0) chosen(main, data.channels);
  for (const output of data.outputs) traces(main, output);
  for (const [stream, why] of Object.entries(figures.not_drawn)) add(main, "p", `${stream} is not drawn: ${why}`, "note");

  if (data.outputs.some((output) => output.lanes.some((lane) => lane.is_observed))) {
    add(main, "h2", "Ages");
    add(main, "p", "Of the newest row of each observation: its target minus the newest sample at or before it.", "note");
    for (const output of data.outputs) ages(main, output);
    add(main, "h2", "Times");
    add(main, "p", "Wait: by stamps, how far the newest sample was past the target. Source to policy: from the target to the arrival of the message that made the observation due; of recorded " +
      "observations, to their arrival at the recorder. Compute: of a configuration, on the machine that made this page.", "note");
    for (const output of data.outputs) {
      const all = output.is_computed ? trial.observations : figures.recorded;
      const of = all.find((one) => one.output === output.name);
      if (!of || !(of.wait_ms || of.delay_ms || of.compute_ms)) continue;
      add(main, "h3", heading(output));
      const row = add(main, "div", null, "row");
      histogram(row, "Wait", output.wait, of.wait_ms);
      histogram(row, "Source to policy", output.delay, of.delay_ms);
      histogram(row, "Compute", output.compute, of.compute_ms);
    }
  }
  for (const of of data.diagnostics) {
    add(main, "h2", `Diagnostics: ${of.stream}`);
    add(main, "p", "What a node said of itself while it was recorded. Each figure is of the seconds before it.", "note");
    for (const chart of of.charts) {
      if (!chart.stretches.some((stretch) => stretch.columns.some((column) => column.some((value) => value !== null)))) continue;
      add(main, "h3", chart.name);
      for (const stretch of chart.stretches) {
        plot(main, stretch.times_s, chart.lines.map((name, i) => ({ name, values: stretch.columns[i] })), { unit: "ms", fromZero: true });
      }
    }
  }

  add(main, "h2", "Streams and gaps");
  add(main, "p", "A gap is a step of more than 1.5 times the median step. A gap of n median steps counts as n - 1 lost samples.", "note");
  table(main, ["<stream", "messages", "rate Hz", "step p50", "p99", "max ms", "the longest at s", "gaps", "lost", "disorder", "twice", "NaN, inf", "delay p50", "p99 ms", "<payload of the first"],
    info.streams.map((of) => {
      const step = of.step_ms || {};
      const delay = of.delay_ms || {};
      return [of.name, whole(of.messages), figure(of.rate_hz), figure(step.p50), figure(step.p99), figure(step.max), figure(of.longest_step_at_s), whole(of.gaps), whole(of.lost),
        whole(of.out_of_order), whole(of.duplicates), whole(of.nonfinite), figure(delay.p50), figure(delay.p99), of.payload];
    }));

  add(main, "h2", "Dropped and faulty");
  const said = main.childElementCount;
  if (trial && trial.grids.length > 0) {
    table(main, ["<grids", "count", "rate Hz", "points", "kept", "outside", "not finite", "past max_voxels"], trial.grids.map((of) =>
      [of.output, whole(of.count), figure(of.rate_hz), whole(of.points_in), whole(of.points_kept), whole(of.dropped_outside), whole(of.dropped_nonfinite), whole(of.dropped_overflow)]));
  }
  for (const of of data.diagnostics) {
    const counted = ["messages", "late", "faults", "dropped_overflow", "dropped_nonfinite", "dropped_length", "dropped_stamp", "dropped_range", "dropped_unreachable", "out_of_order", "gaps"];
    table(main, [`<${of.stream}`, ...counted.map((name) => name.replaceAll("_", " ")), "<said last"], Object.entries(of.inputs).map(([name, input]) =>
      [name, ...counted.map((column) => whole(input.numbers[column])), input.message]));
  }
  for (const fault of trial ? trial.faults : []) {
    add(main, "p", `${fault.at}: ${fault.count} faults and warnings`);
    const list = add(main, "ul");
    for (const cause of fault.causes) add(list, "li", `${cause.count}, such as: ${cause.such_as}`);
  }
  for (const of of trial ? trial.observations : []) if (of.late_samples > 0) add(main, "p", `${of.output}: ${of.late_samples} samples came after their target was sent`);
  if (trial && trial.missing.length > 0) add(main, "p", `Not in the recording: ${trial.missing.join(", ")}`);
  if (trial && trial.unused.length > 0) add(main, "p", `Not used: ${trial.unused.join(", ")}`);
  for (const problem of info.problems) add(main, "p", `Can't be read: ${problem}`);
  if (main.childElementCount === said) add(main, "p", "Nothing.");

  add(main, "h2", "Configuration, version, machine");
  if (data.config) {
    add(main, "p", `${data.config.file}:`);
    add(main, "pre", data.config.text);
  } else {
    add(main, "p", "No configuration was given.");
  }
  add(main, "p", `robocache ${data.made.version} on ${data.made.machine}, ${new Date(data.made.at_ms).toISOString()}`);
  addEventListener("resize", () => plots.forEach(([it, wide]) => it.setSize({ width: wide(), height: it.height })));
}

show();
