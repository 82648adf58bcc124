// Holds Python. The page sends {id, call, value}, and gets {id, answer} or {id, failed}; while it loads, {step, of}.
import { loadPyodide } from "./pyodide/pyodide.mjs";
import { unpack } from "./unpack.js";

/** A config.json has the name of its folder, unless it names its model. */
const folderOf = (files) => `/files/your ${files.find(({ name }) => name === "params.json")?.name ?? "config.json"}`;
const step = (text, done) => postMessage({ step: text, done });

/** @returns {Promise<(call: string, ...values: any[]) => string>} */
async function start() {
  step("Loading Python", 0.1);
  const files = fetch("attncalc.pack").then(unpack);
  files.catch(() => {}); // it is awaited below, after Pyodide
  const python = await loadPyodide();
  step("Loading attncalc", 0.6);
  (await files)(python.FS, "/lib/attncalc");
  python.runPython(`import sys; sys.path.insert(0, "/lib/attncalc"); import hub; hub.install(); import answer`);
  step("Ready", 1);
  const answer = python.pyimport("answer");
  return { call: (name, ...values) => answer[name](...values), files: (list) => mount(python.FS, list) };
}

let mounted = "";

/** Shows files to Python in its folder. Of a File only the parts that Python reads are read. */
function mount(FS, files) {
  FS.chdir("/");
  if (mounted) FS.unmount(mounted);
  mounted = folderOf(files);
  FS.mkdirTree(mounted);
  FS.mount(FS.filesystems.WORKERFS, { files }, mounted);
  FS.chdir(mounted);
}

const broken = (error) => postMessage({ broken: String(error?.message ?? error).trim().split("\n").pop() });
// Pyodide waits for ever if WebAssembly does not load
const instantiate = WebAssembly.instantiateStreaming;
WebAssembly.instantiateStreaming = (...values) =>
  instantiate(...values).catch((error) => {
    broken(`pyodide.asm.wasm does not load (${error.message})`);
    throw error;
  });
const started = start();
started.catch(broken);

onmessage = async ({ data: { id, call, values } }) => {
  const python = await started;
  try {
    postMessage({ id, answer: call === "files" ? python.files(...values) : JSON.parse(python.call(call, ...values)) });
  } catch (error) {
    postMessage({ id, failed: String(error?.message ?? error) });
  }
};
