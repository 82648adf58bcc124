// The form, the address and the answer. Every figure and every word about one comes from Python, in worker.js.

/**
 * @typedef {{name: string, names: string[], help: string, default: string, kind: "text"|"flag"|"switch", choices: string, repeated: boolean}} Option
 * @typedef {{name: string, help: string, many: boolean, groups: {title: string, options: Option[]}[]}} Command
 * @typedef {{command: string, models: string[], options: Record<string, any>}} Question
 */

const EXAMPLE = "?command=fit&model=llama3.1-8b&gpu=h100-80gb&context=8192";
/** Letters of a field. A browser refuses an address of millions. */
const MOST_LETTERS = 2000;
const $ = (/** @type {string} */ selector) => /** @type {any} */ (document.querySelector(selector));

/** Makes an element. Texts are always text, never markup. */
function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null && child !== false));
  return element;
}

/** Texts whose options, as --gpu-memory-utilization, are not broken at their hyphens. */
const unbroken = (text) => text.split(/(?<![\w/.])(--?[a-z][\w-]*)/).map((part, i) => (i % 2 ? el("span", { class: "unbroken" }, part) : part));

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// The address

/** @type {{version: string, commands: Command[], choices: Record<string, string[][]>}} */
let form;
/** @type {Question} */
let question;

const commandOf = (/** @type {string} */ name) => form.commands.find((command) => command.name === name);
const optionsOf = (/** @type {Command} */ command) => command.groups.flatMap((group) => group.options);

/** Returns the question of an address, and the names in it that this version does not know. */
function read(search) {
  const given = new URLSearchParams(search || EXAMPLE);
  const name = given.get("command") ?? "fit";
  const command = commandOf(name) ?? form.commands[0];
  const unknown = command.name === name ? [] : [`command ${name}`];
  const options = {};
  for (const [key, value] of given) {
    if (key === "command" || key === "model") continue;
    const option = optionsOf(command).find((each) => each.name === key || each.names.includes(`--${key}`));
    if (!option) unknown.push(`option --${key}`);
    else if (option.kind !== "text") options[option.name] = value !== "no";
    else if (option.repeated) options[option.name] = [...(options[option.name] ?? []), value];
    else options[option.name] = value;
  }
  return { question: { command: command.name, models: given.getAll("model"), options }, unknown };
}

function address({ command, models, options }) {
  const parts = new URLSearchParams([["command", command], ...models.map((model) => ["model", model])]);
  for (const [name, value] of Object.entries(options)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      parts.append(name, each === true ? "yes" : each === false ? "no" : each);
    }
  }
  return `?${parts}`.replaceAll("%2F", "/").replaceAll("%3A", ":").replaceAll("%2C", ",");
}

let isTyping = false;

/** Shows the question in the address: a finished change is one step back, however many letters it has. */
function remember(isFinished) {
  const here = address(question);
  document.title = `attncalc ${question.command} ${question.models.join(" ")}`;
  if (here !== location.search) history[isTyping ? "replaceState" : "pushState"](null, "", here);
  isTyping = !isFinished;
}

// The form

function drawForm() {
  const command = commandOf(question.command);
  $("#commands").replaceChildren(
    ...form.commands.map(({ name, help }) =>
      el("a", { href: address({ ...question, command: name, options: kept(name) }), title: help, "aria-current": name === command.name && "page", onclick: go }, name),
    ),
  );
  const models = question.models.length ? question.models : [""];
  const shown = command.many && models.at(-1) ? [...models, ""] : models;
  const [first, ...rest] = command.groups;
  $("#form").replaceChildren(
    el("p", { class: "question" }, command.help),
    el("div", { class: "fields models" }, ...shown.map((model, i) => modelField(model, i, command.many))),
    el("div", { class: "fields" }, ...first.options.flatMap(fields)),
    rest.length > 1 ? fold("More options", rest.flatMap((group) => group.options), rest.map((group) => foldOf(group))) : foldOf(rest[0], "More options"),
  );
}

const foldOf = ({ title, options }, name = title) => fold(name, options, [el("div", { class: "fields" }, ...options.flatMap(fields))]);

/** Options that unfold; open if one of them is set, except on phones, where the answer is below. */
function fold(title, options, content) {
  const set = options.filter((option) => option.name in question.options).length;
  const count = el("span", { class: "count" }, set ? `${set} of ${options.length} set` : `${options.length}`);
  return el("details", { open: set > 0 && innerWidth > 480 }, el("summary", {}, title, " ", count), ...content);
}

/** The options of the question that another command has too. */
function kept(name) {
  const names = optionsOf(commandOf(name)).map((option) => option.name);
  return Object.fromEntries(Object.entries(question.options).filter(([key, value]) => names.includes(key) && !Array.isArray(value)));
}

function modelField(value, i, many) {
  const label = many ? `model ${i + 1}` : "model";
  const input = el("input", { id: i ? `model-${i}` : "model", name: "model", list: "MODEL", maxlength: MOST_LETTERS, value, spellcheck: "false", autocapitalize: "off", placeholder: i ? "another one" : "llama3.1-8b, or org/name", "aria-describedby": "about-model", onpaste: paste });
  const about = el("p", { id: i ? null : "about-model", class: "about" }, "A name, or a ", el("button", { type: "button", class: "link", onclick: () => $("#file").click() }, "file"), " that you choose, drop or paste: config.json, params.json, GGUF, YAML.");
  return el("div", { class: "field wide" }, el("label", { for: input.id }, label), input, i ? null : about);
}

/** @param {Option} option @returns {HTMLElement[]} */
function fields(option) {
  const value = question.options[option.name];
  const values = option.repeated ? [...(value ?? []), ""] : [value ?? ""];
  return values.map((each, i) => field(option, each, i ? `${option.name}-${i}` : option.name));
}

function field(option, value, id) {
  const about = el("p", { id: `about-${id}`, class: "about" }, option.help);
  const common = { id, name: option.name, "aria-describedby": about.id };
  if (option.kind === "flag") {
    const box = el("input", { ...common, type: "checkbox", checked: value === true });
    return el("div", { class: "field flag" }, box, el("label", { for: id }, option.name), about);
  }
  const input =
    option.kind === "switch"
      ? el("select", common, ...[["", option.default || "default"], ["yes", "yes"], ["no", "no"]].map(([key, text]) => el("option", { value: key, selected: key === (value === "" ? "" : value ? "yes" : "no") }, text)))
      : el("input", { ...common, value, list: option.choices || null, maxlength: MOST_LETTERS, placeholder: option.default, spellcheck: "false", autocapitalize: "off" });
  return el("div", { class: "field" }, el("label", { for: id }, option.name), input, about);
}

function readForm() {
  const options = {};
  for (const input of $("#form").querySelectorAll("[name]:not([name=model])")) {
    const option = optionsOf(commandOf(question.command)).find((each) => each.name === input.name);
    const value = input.value.trim();
    if (option.kind === "flag") input.checked && (options[option.name] = true);
    else if (value && option.kind === "switch") options[option.name] = value === "yes";
    else if (value && option.repeated) options[option.name] = [...(options[option.name] ?? []), value];
    else if (value) options[option.name] = value;
  }
  const models = [...$("#form").querySelectorAll("[name=model]")].map((input) => input.value.trim()).filter(Boolean);
  question = { command: question.command, models, options };
}

/** Adds an empty field after the last one of a list that is full. */
function grow() {
  const command = commandOf(question.command);
  const models = $("#form").querySelectorAll("[name=model]");
  if (command.many && models[models.length - 1].value) models[models.length - 1].parentElement.after(modelField("", models.length, true));
  for (const option of optionsOf(command).filter((each) => each.repeated)) {
    const inputs = $("#form").querySelectorAll(`[name="${option.name}"]`);
    if (inputs[inputs.length - 1].value) inputs[inputs.length - 1].parentElement.after(field(option, "", `${option.name}-${inputs.length}`));
  }
}

// Python

let worker;
let ready = false;
let nextId = 0;
const waiting = new Map();
/** Repositories that the reader asked the hub for. */
const hub = new Set();

function call(name, ...values) {
  const id = nextId++;
  worker.postMessage({ id, call: name, values });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

function startPython() {
  worker = new Worker("worker.js", { type: "module" });
  worker.onerror = (event) => stop(`Python could not start${event.message ? `: ${sentence(event.message)}` : "."}`);
  worker.onmessage = ({ data }) => {
    if (data.broken) return stop(`Python could not start: ${sentence(data.broken)}`);
    if (data.step) return progress(data.step, data.done);
    const { resolve, reject } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.failed) reject(new Error(data.failed));
    else resolve(data.answer);
  };
}

function progress(text, done) {
  $("#loading progress").value = done;
  $("#loading span").textContent = `${text} …`;
  $("#loading").hidden = done === 1;
  ready = done === 1;
}

const sentence = (/** @type {string} */ text) => `${text.replace(/\.$/, "")}.`;

function stop(problem) {
  $("#broken").textContent = `${problem} Reload the page, update the browser, or run attncalc in a terminal.`;
  $("#broken").hidden = false;
  $("#loading").hidden = true;
}

/** Shows that an answer is on its way, to the eye after a moment. */
function working(state) {
  document.documentElement.dataset.state = state;
  $("#answer").setAttribute("aria-busy", state === "asking");
}

let busy = false;
let again = false;

/** Asks Python; of questions that come while it works, only the last is asked. */
async function ask() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  working("asking");
  do {
    again = false;
    const asked = JSON.stringify({ ...question, hub: [...hub] });
    try {
      const answer = await call("ask", asked);
      if (again) continue;
      if (answer.errors) showErrors(answer.errors);
      else {
        show(answer);
        const curve = again ? undefined : await call("curve");
        if (curve !== undefined && !again) showCurve(curve);
      }
    } catch (error) {
      showErrors([{ error: error.message, tip: "reload the page" }]);
    }
  } while (again);
  busy = false;
  working("answered");
  keepFiles();
}

/** Keeps the page's files for use without a network: after the first answer, which would be later by it. */
function keepFiles() {
  navigator.serviceWorker?.register("sw.js").catch(() => {}); // without one the page needs a network, as any other
}

// Events

function changed(event) {
  if (!event.target.name) return;
  const before = address(question);
  readForm();
  if (event.type === "change") grow();
  remember(event.type === "change");
  if (address(question) !== before) ask(); // else a click on an error's button, which ends the change, would lose it
}

/** Shows another question: a link of the page, a change that makes it fit, or a step back. */
function open(search, isStep = true) {
  if (isStep) history.pushState(null, "", search);
  const { question: asked, unknown } = read(location.search);
  question = asked;
  drawForm();
  document.title = `attncalc ${question.command} ${question.models.join(" ")}`;
  if (unknown.length) showUnknown(unknown);
  else ask();
}

function go(event) {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  open(event.currentTarget.getAttribute("href"));
  $("#commands [aria-current]").focus(); // the link is drawn anew
}

/** Applies the options of a change: '--gpus 2 --tp 2'. */
function apply(flags) {
  const words = flags.split(" ");
  const options = { ...question.options };
  for (let i = 0; i < words.length; i++) {
    const word = words[i].replace(/^--no-/, "--");
    const option = optionsOf(commandOf(question.command)).find((each) => each.names.includes(words[i]) || each.names.includes(word));
    if (option.kind === "text") options[option.name] = words[++i];
    else options[option.name] = words[i] === word;
  }
  open(address({ ...question, options }));
  $("#headline").focus(); // the button is gone
}

/** Gives files to Python, and asks about the first of them. */
async function take(files) {
  if (!files.length) return;
  await call("files", files);
  const name = (files.find((file) => /^(config|params)\.json$/.test(file.name)) ?? files[0]).name;
  const search = address({ ...question, models: commandOf(question.command).many ? [...question.models, name] : [name] });
  open(search, search !== location.search);
}

function paste(event) {
  const text = event.clipboardData.getData("text").trim();
  if (!text.startsWith("{")) return;
  event.preventDefault();
  take([new File([text], "config.json")]);
}

function drop(event) {
  event.preventDefault();
  document.documentElement.classList.remove("dropping");
  take([...event.dataTransfer.files]);
}

// The answer

function showErrors(errors) {
  clearErrors();
  $("#result").classList.add("stale");
  for (const { error, tip, is_model, hub: name } of errors) {
    const input = fieldOf(error, is_model || name);
    const lines = el("p", { class: "error", id: `error-${input?.id ?? "page"}` }, ...unbroken(`error: ${error}`), el("br"), tip ? el("span", { class: "tip" }, ...unbroken(`tip: ${tip}`)) : null);
    if (name) lines.append(" ", el("button", { type: "button", onclick: () => { hub.add(name); input?.focus(); ask(); } }, "Read it from huggingface.co"));
    if (!input) {
      $("#errors").append(lines);
      continue;
    }
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", `${lines.id} about-${input.id}`);
    for (let each = input; (each = each.parentElement.closest("details")); ) each.open = true;
    input.parentElement.append(lines);
    lines.setAttribute("role", "alert");
  }
}

function clearErrors() {
  for (const each of document.querySelectorAll(".error")) each.remove();
  for (const input of document.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.setAttribute("aria-describedby", `about-${input.id}`);
  }
}

/** The field that an error is about: the one whose option or value it names. */
function fieldOf(error, isModel) {
  const options = optionsOf(commandOf(question.command));
  const places = options.flatMap((option) => option.names.map((name) => [error.search(new RegExp(`(^|[^\\w-])${name}(?![\\w-])`)), option.name]));
  const [place, name] = places.filter(([at]) => at >= 0).sort((a, b) => a[0] - b[0])[0] ?? [];
  const quoted = Object.entries(question.options).find(([, value]) => typeof value === "string" && error.includes(`'${value}'`))?.[0];
  const id = isModel ? "model" : place !== undefined && place < 20 ? name : (quoted ?? name ?? (error.includes(question.models[0]) ? "model" : ""));
  return id ? document.getElementById(id) : null;
}

function showUnknown(names) {
  clearErrors();
  const rest = address(question);
  $("#errors").append(
    el("p", { class: "error" }, ...unbroken(`error: attncalc ${form.version} has no ${names.join(" and no ")}`), el("br"), el("span", { class: "tip" }, "tip: the link may be from a newer version: reload the page, or "), el("a", { href: rest, onclick: go }, "leave it out")),
  );
}

function show(answer) {
  clearErrors();
  $("#result").hidden = false;
  $("#result").classList.remove("stale");
  const headline = $("#headline");
  headline.className = answer.verdict ?? "";
  if (headline.textContent !== answer.headline) headline.textContent = answer.headline;
  $("#facts").replaceChildren(...answer.facts.filter(Boolean).flatMap((fact) => [fact, el("br")]));
  showBar(answer.bar);
  $("#tables").replaceChildren(...answer.tables.map(table));
  showChanges(answer.changes);
  $("#lines").replaceChildren(...[["The same in a terminal", answer.command_line], ...answer.commands].map(copied));
  showFigures(answer.figures);
  $("#notes").hidden = !answer.notes.length;
  $("#notes ul").replaceChildren(...answer.notes.map((note) => el("li", {}, ...unbroken(note))));
}

function showBar(bar) {
  const figure = $("#bar");
  figure.hidden = !bar;
  if (!bar) return;
  const track = el("div", { class: "track", "aria-hidden": "true" });
  for (const { kind, share } of bar.pieces) {
    const piece = el("span", { class: `piece ${kind}` });
    piece.style.width = `${100 * share}%`;
    track.append(piece);
  }
  const mark = (place, text) => {
    const line = el("span", { class: "mark" }, el("span", {}, text));
    line.style.left = `${100 * place}%`;
    line.classList.toggle("early", place < 0.5);
    return line;
  };
  if (bar.memory < 1) track.append(mark(bar.memory, "GPU memory"));
  const legend = bar.legend.map(({ kind, text }) => el("li", {}, el("span", { class: `key ${kind}` }), text));
  figure.replaceChildren(track, el("ul", { class: "legend" }, ...legend), el("figcaption", {}, ...unbroken(bar.caption)));
}

function table({ columns, rows, strong }) {
  const cell = (text, i) => {
    const indent = text.length - text.trimStart().length;
    const name = !i && columns[0].align === "left" ? "th" : "td";
    return el(name, { class: [columns[i].align, indent && "part", text.length < 12 && "unbroken"].filter(Boolean).join(" "), scope: name === "th" && "row" }, text.trim());
  };
  const head = columns.some((column) => column.header);
  return el(
    "div",
    { class: "scroll", tabindex: columns.length > 4 ? "0" : null },
    el(
      "table",
      {},
      head ? el("thead", {}, el("tr", {}, ...columns.map(({ header, align }) => el(header ? "th" : "td", { class: align, scope: header && "col" }, header)))) : null,
      el("tbody", {}, ...rows.map((row, i) => el("tr", { class: strong.includes(i) && "strong" }, ...row.map(cell)))),
    ),
  );
}

function showChanges(changes) {
  $("#changes").hidden = !changes.length;
  $("#changes ul").replaceChildren(
    ...changes.map(({ words, flag, gives }) =>
      el("li", {}, el("button", { type: "button", onclick: () => apply(flag) }, words), flag !== words && el("code", {}, flag), gives && el("span", {}, gives)),
    ),
  );
}

function copied([title, line]) {
  const button = el("button", {
    type: "button",
    onclick: async () => {
      await navigator.clipboard.writeText(line);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    },
  }, "Copy");
  const words = line.split(/( )/).map((word) => (word === " " ? word : el("span", { class: "word" }, word)));
  return el("div", { class: "line" }, el("h3", {}, ...unbroken(title)), el("pre", { tabindex: "0", role: "group", "aria-label": title }, ...words), button);
}

/** Pixels of a letter of a formula, and a little more. */
const LETTER = 8.5;
const unfolded = new Set();

function showFigures(figures) {
  const list = figures.map(({ label, human, exact }, i) => {
    const lines = el("pre", { tabindex: "0" });
    const fill = async () => (lines.textContent = await call("explain", i, Math.max(40, Math.min(80, Math.floor($("#figures").clientWidth / LETTER) - 2))));
    const fold = el("details", {
      ontoggle: () => {
        if (fold.open) fill();
        unfolded[fold.open ? "add" : "delete"](label);
      },
    }, el("summary", {}, el("span", {}, label.trim()), el("b", {}, human), el("span", { class: "exact" }, exact === human ? "" : exact)), lines);
    fold.open = unfolded.has(label);
    return fold;
  });
  $("#figures").hidden = !list.length;
  $("#figures div").replaceChildren(...list);
}

function showCurve(curve) {
  const figure = $("#curve");
  figure.hidden = !curve;
  if (!curve) return;
  const [width, height, left, right, top, bottom] = [Math.max(280, Math.min(680, $("#result").clientWidth)), 240, 66, 12, 14, 40];
  const x = (at) => (left + at * (width - left - right)).toFixed(1);
  const y = (at) => (height - bottom - at * (height - top - bottom)).toFixed(1);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${curve.title}, by ${curve.x_label}. The table below has the same numbers.` });
  for (const { at, label } of curve.y_ticks) {
    drawn.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(at), y2: y(at) }), svg("text", { x: left - 8, y: y(at), dy: "0.35em", "text-anchor": "end" }, label));
  }
  for (const { at, label } of curve.x_ticks) drawn.append(svg("text", { x: x(at), y: height - bottom + 18, "text-anchor": "middle" }, label));
  drawn.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, curve.x_label));
  if (curve.here != null) drawn.append(svg("line", { class: "here", x1: x(curve.here), x2: x(curve.here), y1: y(0), y2: y(1) }));
  if (curve.limit) {
    const above = curve.limit.y < 0.9;
    drawn.append(svg("line", { class: "limit", x1: left, x2: width - right, y1: y(curve.limit.y), y2: y(curve.limit.y) }), svg("text", { class: "limit", x: left + 6, y: y(curve.limit.y), dy: above ? "-0.4em" : "1.1em" }, curve.limit.label));
  }
  curve.series.forEach(({ points }, i) => {
    drawn.append(svg("polyline", { class: `series s${i % 6}`, points: points.map((point) => `${x(point.x)},${y(point.y)}`).join(" ") }));
    for (const point of points) drawn.append(svg("circle", { class: `series s${i % 6}`, cx: x(point.x), cy: y(point.y), r: 3 }));
  });
  const names = curve.series.length > 1 ? el("ul", { class: "legend" }, ...curve.series.map(({ label }, i) => el("li", {}, el("span", { class: `key s${i % 6}` }), label))) : null;
  const columns = [curve.x_label, ...curve.series.map(({ label }) => label || curve.title)].map((header) => ({ header, align: "right" }));
  const numbers = el("details", {}, el("summary", {}, "In numbers"), table({ columns, rows: curve.rows, strong: [] }));
  figure.replaceChildren(el("figcaption", {}, `${curve.title}, by ${curve.x_label}`), drawn, ...(names ? [names] : []), numbers);
}

// Start

async function start() {
  if (typeof WebAssembly !== "object") return stop("This browser has no WebAssembly.");
  $("#broken").hidden = true;
  startPython(); // it takes longest
  const response = await fetch("form.json");
  if (!response.ok) return stop(`form.json is not there (${response.status}).`);
  form = await response.json();
  for (const [name, values] of Object.entries(form.choices)) {
    document.body.append(el("datalist", { id: name }, ...values.map(([value, label]) => el("option", { value }, label))));
  }
  document.body.append(el("input", { type: "file", id: "file", multiple: true, hidden: true, onchange: (event) => take([...event.target.files]) }));
  $("footer").textContent = `attncalc ${form.version}, computed in this browser. Nothing that you type leaves it, except for a model that you ask huggingface.co for.`;
  $("main").hidden = false;
  $("#form").addEventListener("input", changed);
  $("#form").addEventListener("change", changed);
  $("#form").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("popstate", () => open(location.search, false));
  addEventListener("dragover", (event) => { event.preventDefault(); document.documentElement.classList.add("dropping"); });
  addEventListener("dragleave", (event) => event.relatedTarget || document.documentElement.classList.remove("dropping"));
  addEventListener("drop", drop);
  open(location.search, false);
}

start().catch((error) => stop(`The page could not start: ${sentence(error.message)}`));
