// The form, the address and the answer. Every figure and every word about one comes from Python, in worker.js.

/**
 * @typedef {{name: string, label: string, names: string[], help: string, default: string, kind: "text"|"flag"|"switch", choices: string, repeated: boolean}} Option
 * @typedef {{name: string, label: string, help: string, many: boolean, groups: {title: string, options: Option[]}[]}} Command
 * @typedef {{command: string, models: string[], options: Record<string, any>}} Question
 */

const EXAMPLE = "?command=fit&model=llama3.1-8b&gpu=h100-80gb&context=8192";
/** Letters of a field. A browser refuses an address of millions. */
const MOST_LETTERS = 2000;
/** Milliseconds without a key after which a reader has typed a name, and not its first letters. */
const PAUSE = 1000;
/** Two columns, as in style.css. */
const WIDE = matchMedia("(min-width: 46rem)");
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

// Words. Texts from Python name options and commands as in a terminal; the page has fields and links instead.

/** An option's label without its unit: "Context" of "Context, in tokens". */
const shortLabel = (/** @type {Option} */ option) => option.label.split(",")[0];
const OPTIONS = /('(?:attncalc|fit|kv|compare|plan|train) [^']*'|(?<![\w/.'-])--?[a-z][\w-]*)/;
/** An option, with its value if it has one, before another option: "--gpus 2 --tp 2", but not "--users or --rate". */
const NEIGHBOURS = /(?<![\w/.'-])(--[a-z][\w-]*(?: (?!or |and |with )[^\s-]\S*)?)(?<![,;:.(]) (?=--[a-z])/g;

/** Returns the option of the question with this name, and whether the name says no to it: --no-prefix-caching. */
function named(/** @type {string} */ name) {
  const options = optionsOf(commandOf(question.command));
  const option = options.find((each) => each.names.includes(name));
  return { option, isNo: Boolean(option) && option.kind === "switch" && name.startsWith("--no-") };
}

/** Returns a text from Python as nodes, whose options are links to their fields, and whose commands are links to the question. */
function worded(/** @type {string} */ text) {
  return text.replace(NEIGHBOURS, "$1, ").split(OPTIONS).map((part, i) => {
    if (i % 2 === 0) return part;
    if (part.startsWith("'")) return commandLink(part.slice(1, -1));
    const { option, isNo } = named(part);
    if (!option) return el("span", { class: "unbroken" }, part);
    const label = isNo ? `no ${shortLabel(option)}` : shortLabel(option);
    return el("a", { href: `#${option.name}`, title: part, onclick: (event) => focusField(event, option.name) }, label);
  });
}

/** Returns the same without links, for the headline, for help, and for what is read aloud. */
const spoken = (/** @type {string} */ text) => el("p", {}, ...worded(text)).textContent;

/** Returns a link to the question of a command line, or its name if the page does not have it. */
function commandLink(/** @type {string} */ line) {
  const [name, ...words] = line.replace(/^attncalc /, "").split(" ");
  const command = commandOf(name);
  if (!command) return `${name} in a terminal`;
  const models = [];
  const options = {};
  while (words.length) {
    const word = words.shift();
    const option = optionsOf(command).find((each) => each.names.includes(word));
    if (option) options[option.name] = option.kind === "text" ? (words.shift() ?? "") : true;
    else if (/^[A-Z]+$/.test(word)) models.push(...question.models); // MODEL
    else models.push(word);
  }
  const said = Object.entries(options).map(([key, value]) => `${shortLabel(optionsOf(command).find((each) => each.name === key))} ${value === true ? "" : value}`.trim());
  const title = [command.label, ...models].join(" ");
  const asked = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== ""));
  // the rest of the question stays
  const to = address({ command: name, models: models.length ? models : question.models, options: { ...kept(name), ...asked } });
  return el("a", { href: to, onclick: go }, said.length ? `${title} with ${said.join(", ")}` : title);
}

function focusField(event, /** @type {string} */ name) {
  event.preventDefault();
  const input = document.getElementById(name);
  unfold(input);
  input.focus();
}

/** Opens what an element is folded in, and leaves a search that hides it. */
function unfold(/** @type {HTMLElement} */ element) {
  if (element.closest(".field[hidden]")) searchOptions("");
  for (let each = element; (each = each.parentElement.closest("details")); ) each.open = true;
}

/** Says something to a screen reader, once the reader pauses. */
let saying;
function say(/** @type {string} */ text) {
  clearTimeout(saying);
  saying = setTimeout(() => ($("#said").textContent = text), Math.max(50, restOfPause()));
}

/** When the last key was pressed, in milliseconds. */
let typedAt = 0;
/** Milliseconds until the reader has paused, however long Python took meanwhile. */
const restOfPause = () => (isTyping ? Math.max(0, typedAt + PAUSE - performance.now()) : 0);

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

/** Returns the question of an address, what it asks that this version does not have, and a command of the terminal only. */
function read(search) {
  const given = new URLSearchParams(search || EXAMPLE);
  const name = given.get("command") ?? "fit";
  const command = commandOf(name) ?? form.commands[0];
  if (command.name !== name) return { question: { command: command.name, models: given.getAll("model"), options: {} }, unknown: [], command: name };
  const unknown = [];
  const options = {};
  for (const [key, value] of given) {
    if (key === "command" || key === "model") continue;
    const name = key.replaceAll("_", "-");
    const option = optionsOf(command).find((each) => each.names.includes(`--${name}`) || each.names.includes(`-${name}`));
    if (!option) unknown.push(key);
    else if (option.kind !== "text") options[option.name] = value !== "no";
    else if (option.repeated) options[option.name] = [...(options[option.name] ?? []), value];
    else options[option.name] = value;
  }
  return { question: { command: command.name, models: given.getAll("model"), options }, unknown, command: "" };
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
  nameThePage();
  if (here !== location.search) history[isTyping ? "replaceState" : "pushState"](null, "", here);
  isTyping = !isFinished;
}

const nameThePage = () => (document.title = `${commandOf(question.command).label} ${question.models.join(" ")} - attncalc`);

// The form

function drawForm() {
  const command = commandOf(question.command);
  $("#commands").replaceChildren(
    ...form.commands.map(({ name, label, help }) =>
      el("a", { href: address({ ...question, command: name, options: kept(name) }), title: help, "aria-current": name === command.name && "page", onclick: go }, label),
    ),
  );
  const models = question.models.length ? question.models : [""];
  const [first, common, ...rest] = command.groups;
  $("#about").textContent = command.help;
  $("#form").replaceChildren(...models.map((model, i) => modelField(model, i, command.many)), ...first.options.flatMap(fields));
  $("#more").replaceChildren(
    fold("More options", optionsOf(command).filter((option) => !first.options.includes(option)), [
      searchField(common, rest),
      el("div", { class: "fields" }, ...common.options.flatMap(fields)),
      ...rest.map(({ title, options }) => fold(title, options, [el("div", { class: "fields" }, ...options.flatMap(fields))])),
    ], WIDE.matches),
  );
  arrange();
}

/** Shows the further options below the first ones, or on phones below the verdict. */
function arrange() {
  if (WIDE.matches) $("#question").append($("#more"));
  else $("#verdict").after($("#more"));
}

/** Options that unfold; open if one of them is set, except on phones, where they are below the verdict. */
function fold(title, options, content, open = false) {
  const set = options.filter((option) => option.name in question.options).length;
  const count = el("span", { class: "count" }, set ? `${set} of ${options.length} set` : `${options.length}`);
  return el("details", { open: open || (set > 0 && WIDE.matches) }, el("summary", {}, title, " ", count), ...content);
}

function searchField(common, rest) {
  const count = [common, ...rest].reduce((sum, group) => sum + group.options.length, 0);
  return el("div", { class: "field" },
    el("label", { for: "search" }, `Search these ${count} options`),
    el("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false", oninput: (event) => searchOptions(event.target.value) }),
    el("p", { id: "found", class: "about" }));
}

/** Shows only the options whose label, name or help has these words. */
function searchOptions(/** @type {string} */ text) {
  $("#search").value = text;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const each of document.querySelectorAll("#more .fields .field")) {
    each.hidden = !words.every((word) => each.textContent.toLowerCase().includes(word));
    found += Number(!each.hidden);
  }
  for (const group of document.querySelectorAll("#more details details")) {
    group.hidden = !group.querySelector(".field:not([hidden])");
    if (words.length) group.open = !group.hidden;
    else group.open = [...group.querySelectorAll("[name]")].some((input) => (input.type === "checkbox" ? input.checked : input.value));
  }
  $("#found").textContent = words.length ? `${found} found` : "";
  if (words.length) say(`${found} options found`);
}

/** The options of the question that another command has too. */
function kept(name) {
  const names = optionsOf(commandOf(name)).map((option) => option.name);
  return Object.fromEntries(Object.entries(question.options).filter(([key, value]) => names.includes(key) && !Array.isArray(value)));
}

function modelField(value, i, many) {
  const label = i ? `Model ${i + 1}` : "Model";
  const input = el("input", { id: i ? `model-${i}` : "model", name: "model", list: "MODEL", maxlength: MOST_LETTERS, value, spellcheck: "false", autocapitalize: "off", placeholder: i ? "another one" : "llama3.1-8b, or org/name", "aria-describedby": "about-model", onpaste: paste });
  const more = many ? [" ", el("button", { type: "button", class: "link", onclick: addModel }, "Add a model"), "."] : [];
  const about = el("p", { id: i ? null : "about-model", class: "about" }, "A name, or a ", chooseFile("file"), ": config.json, GGUF or YAML, which you can also drop or paste.", ...more);
  return el("div", { class: "field wide" }, el("label", { for: input.id }, label), input, i ? null : about);
}

/** Adds a field for one more model, unless an empty one is there. */
function addModel() {
  const models = inputs("[name=model]");
  const empty = models.find((input) => !input.value);
  const field = empty?.parentElement ?? modelField("", models.length, true);
  if (!empty) models.at(-1).parentElement.after(field);
  field.querySelector("input").focus();
}

const chooseFile = (/** @type {string} */ text) => el("button", { type: "button", class: "link", onclick: () => $("#file").click() }, text);

/** @param {Option} option @returns {HTMLElement[]} */
function fields(option) {
  const value = question.options[option.name];
  const values = option.repeated ? [...(value ?? []), ""] : [value ?? ""];
  return values.map((each, i) => field(option, each, i ? `${option.name}-${i}` : option.name));
}

function field(option, value, id) {
  const about = el("p", { id: `about-${id}`, class: "about" }, spoken(option.help));
  const common = { id, name: option.name, "aria-describedby": about.id };
  const label = el("label", { for: id }, option.label, " ", el("code", { "aria-hidden": "true" }, `--${option.name}`));
  if (option.kind === "flag") {
    const box = el("input", { ...common, type: "checkbox", checked: value === true });
    return el("div", { class: "field flag" }, box, label, about);
  }
  const input =
    option.kind === "switch"
      ? el("select", common, ...[["", option.default || "default"], ["yes", "yes"], ["no", "no"]].map(([key, text]) => el("option", { value: key, selected: key === (value === "" ? "" : value ? "yes" : "no") }, text)))
      : el("input", { ...common, value, list: option.choices || null, maxlength: MOST_LETTERS, placeholder: option.default || null, spellcheck: "false", autocapitalize: "off" });
  return el("div", { class: "field" }, label, input, about);
}

/** The fields of the question, wherever they are on the page. */
const inputs = (/** @type {string} */ selector) => [...$("main").querySelectorAll(`.field ${selector}`)];

function readForm() {
  const options = {};
  for (const input of inputs("[name]:not([name=model])")) {
    const option = optionsOf(commandOf(question.command)).find((each) => each.name === input.name);
    const value = input.value.trim();
    if (option.kind === "flag") input.checked && (options[option.name] = true);
    else if (value && option.kind === "switch") options[option.name] = value === "yes";
    else if (value && option.repeated) options[option.name] = [...(options[option.name] ?? []), value];
    else if (value) options[option.name] = value;
  }
  const models = inputs("[name=model]").map((input) => input.value.trim()).filter(Boolean);
  question = { command: question.command, models, options };
}

/** Adds an empty field after the last one of an option that may be repeated. */
function grow() {
  const command = commandOf(question.command);
  for (const option of optionsOf(command).filter((each) => each.repeated)) {
    const same = inputs(`[name="${option.name}"]`);
    if (same.at(-1).value) same.at(-1).parentElement.after(field(option, "", `${option.name}-${same.length}`));
  }
}

// Python

let worker;
let ready = false;
let nextId = 0;
const waiting = new Map();
/** Repositories that the reader asked the hub for. */
const hub = new Set();
/** Names of the files that were dropped, chosen or pasted here. */
const dropped = new Set();

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
let endPause = () => {};

/** Waits until the reader has paused, or asks again: the first letters of a name are no mistake. */
function pause() {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, restOfPause());
    endPause = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

/** Asks Python; of questions that come while it works, only the last is asked. */
async function ask() {
  if (busy) {
    again = true;
    endPause();
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
      if (answer.errors) {
        await pause();
        if (!again) showErrors(answer.errors.map(ofLostFile));
      } else {
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
  if (event.type === "change") endPause();
  if (address(question) === before) return; // else a click on an error's button, which ends the change, would lose it
  typedAt = performance.now();
  clearTimeout(saying); // it is about what was typed before
  ask();
}

/** Shows another question: a link of the page, a change that makes it fit, or a step back. */
function open(search, isStep = true) {
  if (isStep) history.pushState(null, "", search);
  const { question: asked, unknown, command } = read(location.search);
  question = asked;
  isTyping = false;
  drawForm();
  nameThePage();
  if (command) showOtherCommand(command);
  else if (unknown.length) showUnknown(unknown);
  else return ask();
}

function go(event) {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  open(event.currentTarget.getAttribute("href"));
  $("#commands [aria-current]").focus({ preventScroll: true }); // the link is drawn anew
}

/** Applies the options of a change: '--gpus 2 --tp 2'. */
async function apply(flags) {
  const words = flags.split(" ");
  const options = { ...question.options };
  for (let i = 0; i < words.length; i++) {
    const word = words[i].replace(/^--no-/, "--");
    const option = optionsOf(commandOf(question.command)).find((each) => each.names.includes(words[i]) || each.names.includes(word));
    if (option.kind === "text") options[option.name] = words[++i];
    else options[option.name] = words[i] === word;
  }
  await open(address({ ...question, options })); // else the last verdict would be read aloud
  $("#headline").focus(); // the button is gone
}

/** Gives files to Python, and asks about the first of them. */
async function take(files) {
  if (!files.length) return;
  await call("files", files);
  for (const { name } of files) dropped.add(name);
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

/** A link has only the name of a file: after a reload it has to be given again. */
function ofLostFile(error) {
  const name = question.models.find((model) => /^[^/]*\.(json|ya?ml|gguf|safetensors)$/i.test(model) && !dropped.has(model));
  if (!error.is_model || !name) return error;
  return { error: `the file ${name} is not in the link, and this page no longer has it`, tip: "drop the file again, or choose it", is_model: true, is_lost: true };
}

/** Hides the answer, which is that of another question, and says in its place which fields are wrong. */
function hideAnswer(/** @type {HTMLInputElement[]} */ fields) {
  $("#verdict").hidden = true;
  $("#details").hidden = true;
  $("#none").hidden = false;
  const links = fields.map((input) => el("a", { href: `#${input.id}`, onclick: (event) => focusField(event, input.id) }, labelOf(input)));
  if (links.length) $("#none").replaceChildren("No answer: see the error in ", ...links.flatMap((link, i) => (i ? [" and ", link] : [link])), ".");
  else $("#none").replaceChildren("No answer: see the error in the question.");
}

const labelOf = (/** @type {HTMLInputElement} */ input) => (input.labels[0].firstChild.textContent.split(",")[0]);

function showErrors(errors) {
  clearErrors();
  const wrong = errors.map(({ error, is_model, hub: name }) => fieldOf(error, is_model || name));
  hideAnswer(wrong.filter(Boolean));
  for (const [i, { error, tip, is_lost, hub: name }] of errors.entries()) {
    const input = wrong[i];
    const lines = el("p", { class: "error", id: `error-${input?.id ?? "page"}` }, "Error: ", ...worded(sentence(error)), " ", tip ? el("span", { class: "tip" }, "Tip: ", ...worded(sentence(tip))) : null);
    if (name) lines.append(" ", el("button", { type: "button", onclick: () => { hub.add(name); input?.focus(); isTyping = false; ask(); } }, "Read it from huggingface.co"));
    if (is_lost) lines.append(" ", el("button", { type: "button", onclick: () => $("#file").click() }, "Choose the file"));
    if (!input) {
      $("#errors").append(lines);
      continue;
    }
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", `${lines.id} about-${input.id}`);
    unfold(input);
    input.parentElement.append(lines);
  }
  say(errors.map(({ error, tip }) => `Error: ${spoken(sentence(error))} ${tip ? `Tip: ${spoken(sentence(tip))}` : ""}`).join(" "));
}

function clearErrors() {
  for (const each of document.querySelectorAll(".error")) each.remove();
  for (const input of document.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.setAttribute("aria-describedby", `about-${input.id}`);
  }
}

/** Letters of an error before its subject: "the option --gpu". */
const BEFORE_SUBJECT = 20;

/** The field that an error is about: the one whose option or value it names. */
function fieldOf(error, isModel) {
  if (!isModel) return document.getElementById(nameOfField(error));
  const models = inputs("[name=model]");
  return models.find((input) => input.value && error.includes(`'${input.value.trim()}'`)) ?? models[0];
}

function nameOfField(error) {
  const options = optionsOf(commandOf(question.command));
  const places = options.flatMap((option) => option.names.map((name) => [error.search(new RegExp(`(^|[^\\w-])${name}(?![\\w-])`)), option.name]));
  const [place, name] = places.filter(([at]) => at >= 0).sort((a, b) => a[0] - b[0])[0] ?? [];
  if (place < BEFORE_SUBJECT) return name;
  const quoted = Object.entries(question.options).find(([, value]) => typeof value === "string" && error.includes(`'${value}'`));
  if (quoted) return quoted[0];
  if (name) return name;
  return error.includes(question.models[0]) ? "model" : "";
}

/** Says what a link asks that is not here, in words and then in a link. */
function showLinkError(words, ...then) {
  clearErrors();
  hideAnswer([]);
  $("#errors").append(el("p", { class: "error" }, words, " ", el("span", { class: "tip" }, ...then)));
  say(`Error: ${$("#errors").textContent}`);
  working("answered");
}

function showUnknown(names) {
  const listed = names.map((name) => `“${name}”`).join(" and ");
  const rest = el("a", { href: address(question), onclick: go }, "leave it out");
  showLinkError(`attncalc ${form.version} has no option ${listed} in ${commandOf(question.command).label}.`, "The link may be from a newer version: reload the page, or ", rest, ".");
}

function showOtherCommand(name) {
  const instead = el("a", { href: address(question), onclick: go }, `ask ${commandOf(question.command).label}`);
  if (form.others.includes(name)) showLinkError(`This page does not have the question “${name}”: attncalc in a terminal has it.`, "Here you can ", instead, ", or choose another question above.");
  else showLinkError(`attncalc ${form.version} has no question “${name}”.`, "The link may be from a newer version: reload the page, or ", instead, ".");
}

function show(answer) {
  clearErrors();
  $("#verdict").hidden = false;
  $("#details").hidden = false;
  $("#none").hidden = true;
  const headline = $("#headline");
  headline.className = answer.verdict ?? "";
  const [, first, rest] = /^(.*?\.) (.*)$/.exec(spoken(answer.headline)) ?? [null, spoken(answer.headline), ""];
  headline.replaceChildren(first, ...(rest ? [" ", el("span", { class: "rest" }, rest)] : []));
  $("#warnings").hidden = !answer.warnings.length;
  $("#warnings").replaceChildren(...answer.warnings.map((note) => el("li", {}, ...worded(note))));
  $("#facts").replaceChildren(...answer.facts.filter(Boolean).flatMap((fact) => [...worded(fact), el("br")]));
  say([answer.headline, ...answer.warnings].map(spoken).join(" "));
  showBar(answer.bar);
  $("#tables").replaceChildren(...answer.tables.map((each) => table(each, "Results")));
  $("#legend").replaceChildren(...answer.legend.map((note) => el("li", {}, ...worded(note))));
  showChanges(answer.changes);
  $("#lines").replaceChildren(...[["The same in a terminal", answer.command_line], ...answer.commands].map(copied));
  showFigures(answer.figures);
  $("#notes").hidden = !answer.notes.length;
  $("#notes .count").textContent = answer.notes.length;
  $("#notes ul").replaceChildren(...answer.notes.map((note) => el("li", {}, ...worded(note))));
  markWide();
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
  const legend = bar.legend.map(({ kind, text }) => el("li", {}, el("span", { class: `key ${kind}` }), text));
  if (bar.memory < 1) {
    const mark = el("span", { class: "mark" });
    mark.style.left = `${100 * bar.memory}%`;
    track.append(mark);
    legend.push(el("li", {}, el("span", { class: "key end" }), "the GPU's memory ends here"));
  }
  figure.replaceChildren(track, el("ul", { class: "legend" }, ...legend), el("figcaption", {}, ...worded(bar.caption)));
}

/** Whether a cell has words more than a number: "8.0 x as much", but not "17,408 to 23,552". */
const isSentence = (/** @type {string} */ text) => text.trim().split(" ").length > 3;

/** A table, which scrolls where it is wider than the page. */
function table({ columns, rows, strong }, label) {
  const cell = (text, i) => {
    const indent = text.length - text.trimStart().length;
    const name = !i && columns[0].align === "left" ? "th" : "td";
    return el(name, { class: [columns[i].align, indent && "part", text.length < 12 && "unbroken", isSentence(text) && "sentence"].filter(Boolean).join(" "), scope: name === "th" && "row" }, ...worded(text.trim()));
  };
  const head = columns.some((column) => column.header);
  return el(
    "div",
    { class: "scroll", "data-label": label, onscroll: (event) => markWideOne(event.currentTarget) },
    el(
      "table",
      { "aria-label": label },
      head ? el("thead", {}, el("tr", {}, ...columns.map(({ header, align }) => el(header ? "th" : "td", { class: align, scope: header ? "col" : null }, header)))) : null,
      el("tbody", {}, ...rows.map((row, i) => el("tr", { class: strong.includes(i) && "strong" }, ...row.map(cell)))),
    ),
  );
}

/** Marks a table that is wider than its place: it fades out at its end, and scrolls by keyboard. */
function markWideOne(place) {
  const isWide = place.scrollWidth > place.clientWidth + 1;
  place.classList.toggle("fades", isWide && place.scrollLeft + place.clientWidth < place.scrollWidth - 1);
  for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", `${place.dataset.label}, scrolls sideways`]]) {
    if (isWide) place.setAttribute(name, value);
    else place.removeAttribute(name);
  }
}

function markWide() {
  for (const place of document.querySelectorAll(".scroll")) markWideOne(place);
}

function showChanges(changes) {
  $("#changes").hidden = !changes.length;
  $("#changes ul").replaceChildren(
    ...changes.map(({ words, flag, gives }) =>
      el("li", {}, el("button", { type: "button", onclick: () => apply(flag) }, words), el("code", {}, flag), gives && el("span", {}, gives)),
    ),
  );
}

/** Copies a line, which `lines` shows. On plain http a browser has no clipboard for pages, but copies what is selected. */
async function copy(line, lines) {
  if (navigator.clipboard) return navigator.clipboard.writeText(line).then(() => "Copied", () => "The browser did not allow it");
  getSelection().selectAllChildren(lines);
  return document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
}

function copied([title, line], i) {
  const id = `line-${i}`;
  const words = line.split(/( )/).map((word) => (word === " " ? word : el("span", { class: "word" }, word)));
  const lines = el("pre", { tabindex: "0", role: "group", "aria-label": spoken(title) }, ...words);
  const button = el("button", {
    type: "button",
    "aria-describedby": id,
    onclick: async () => {
      button.textContent = await copy(line, lines);
      say(button.textContent);
      setTimeout(() => (button.textContent = "Copy"), 3000);
    },
  }, "Copy");
  return el("div", { class: "line" }, el("h3", { id }, ...worded(title)), lines, button);
}

/** Pixels of a letter of a formula, and a little more. */
const LETTER = 8.5;
const unfolded = new Set();

function showFigures(figures) {
  const list = figures.map(({ label, human, exact }, i) => {
    const lines = el("pre", { tabindex: "0", role: "group", "aria-label": `Formula of ${label.trim()}` });
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
  const [width, height, left, right, top, bottom] = [Math.max(280, Math.min(680, $("#details").clientWidth)), 240, 66, 12, 14, 40];
  const x = (at) => (left + at * (width - left - right)).toFixed(1);
  const y = (at) => (height - bottom - at * (height - top - bottom)).toFixed(1);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${curve.title}, by ${curve.x_label}. The table below has the same numbers.` });
  for (const { at, label } of curve.y_ticks) {
    drawn.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(at), y2: y(at) }), svg("text", { x: left - 8, y: y(at), dy: "0.35em", "text-anchor": "end" }, label));
  }
  for (const { at, label } of curve.x_ticks) drawn.append(svg("text", { x: x(at), y: height - bottom + 18, "text-anchor": "middle" }, label));
  drawn.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, curve.x_label));
  if (curve.here != null) drawn.append(svg("line", { class: "here", x1: x(curve.here), x2: x(curve.here), y1: y(0), y2: y(1) }));
  if (curve.longest != null) {
    const end = x(curve.longest);
    const lines = curve.limit?.y < 0.25 ? 4 : 1.6; // above the limit and its label
    drawn.append(svg("line", { class: "longest", x1: end, x2: end, y1: y(0), y2: y(1) }), svg("text", { x: end - 5, y: y(0), dy: `${-lines}em`, "text-anchor": "end" }, "the model's maximum"));
  }
  if (curve.limit) {
    const above = curve.limit.y < 0.9;
    const isCrossed = curve.series.some(({ points }) => Math.abs(points[0].y - curve.limit.y) < 0.15); // where its label begins
    const place = isCrossed ? { x: width - right - 6, "text-anchor": "end" } : { x: left + 6 };
    drawn.append(svg("line", { class: "limit", x1: left, x2: width - right, y1: y(curve.limit.y), y2: y(curve.limit.y) }), svg("text", { class: "limit", ...place, y: y(curve.limit.y), dy: above ? "-0.4em" : "1.1em" }, curve.limit.label));
  }
  curve.series.forEach(({ points }, i) => {
    drawn.append(svg("polyline", { class: `series s${i}`, points: points.map((point) => `${x(point.x)},${y(point.y)}`).join(" ") }));
    for (const point of points) drawn.append(svg("circle", { class: `series s${i}`, cx: x(point.x), cy: y(point.y), r: 3 }));
  });
  const names = curve.series.length > 1 ? el("ul", { class: "legend" }, ...curve.series.map(({ label }, i) => el("li", {}, el("span", { class: `key s${i}` }), label))) : null;
  const columns = [curve.x_label, ...curve.series.map(({ label }) => label || curve.title)].map((header) => ({ header, align: "right" }));
  const numbers = el("details", {}, el("summary", {}, "In numbers"), table({ columns, rows: curve.rows, strong: [] }, "The curve in numbers"));
  numbers.addEventListener("toggle", markWide);
  figure.replaceChildren(el("figcaption", {}, `${curve.title}, by ${curve.x_label}`), drawn, ...(names ? [names] : []), numbers);
}

function showFooter() {
  $("#version").textContent = `attncalc ${form.version}, computed in this browser. Nothing that you type leaves it, except for a model that you ask huggingface.co for.`;
  const links = [["Documentation", form.docs], ["Source", form.source]].filter(([, to]) => to);
  $("#links").replaceChildren(...links.flatMap(([title, to]) => [el("a", { href: to }, title), " "]));
  $("#links").hidden = !links.length;
  const source = form.source ? `git+${form.source}` : ".";
  const where = form.source ? "" : " in a copy of its source";
  $("#install p").replaceChildren(`With Python 3.10 or later${where}: `, el("code", {}, `pip install ${source}`), ". Then ", el("code", {}, "attncalc --help"), " lists its questions.");
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
  showFooter();
  $("main").hidden = false;
  $("main").addEventListener("input", changed);
  $("main").addEventListener("change", changed);
  $("#form").addEventListener("submit", (event) => event.preventDefault());
  WIDE.addEventListener("change", arrange);
  addEventListener("resize", markWide);
  addEventListener("popstate", () => open(location.search, false));
  addEventListener("dragover", (event) => { event.preventDefault(); document.documentElement.classList.add("dropping"); });
  addEventListener("dragleave", (event) => event.relatedTarget || document.documentElement.classList.remove("dropping"));
  addEventListener("drop", drop);
  open(location.search, false);
}

start().catch((error) => stop(`The page could not start: ${sentence(error.message)}`));
