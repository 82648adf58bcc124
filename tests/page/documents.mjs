// Answers questions with Python of the built page:
// node documents.mjs SITE < {"files": {path: text}, "questions": [], "names": [of models], "modules": []}.
// Prints the JSON of each answer, or its error; the preset of each name; and the modules that the page lacks.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const site = process.argv[2];
const { files, questions, names, modules } = JSON.parse(readFileSync(0, "utf-8"));
const { loadPyodide } = await import(pathToFileURL(`${site}/pyodide/pyodide.mjs`));
const { unpack } = await import(pathToFileURL(`${site}/unpack.js`));
const python = await loadPyodide();
(await unpack(new Response(readFileSync(`${site}/attncalc.pack`))))(python.FS, "/lib/attncalc");
for (const [path, text] of Object.entries(files)) {
  python.FS.mkdirTree(path.replace(/\/[^/]*$/, ""));
  python.FS.writeFile(path, text);
}
const [answered, preset, lacks] = python.runPython(`
import sys; sys.path.insert(0, "/lib/attncalc")
import hub; hub.install()
import answer
from importlib.util import find_spec
from attncalc.config.presets import preset_of
from attncalc.errors import AttncalcError

def answered(question):
    try:
        return answer.document(question)
    except AttncalcError as error:
        return str(error)

def lacks(name):
    try:
        return find_spec(name) is None
    except ModuleNotFoundError:
        return True

answered, preset_of, lacks
`);
const answers = questions.map((question) => answered(JSON.stringify(question)));
const imported = python.runPython(`sorted(name for name in sys.modules if name.split(".")[0] in ("typer", "rich", "torch"))`).toJs();
const presets = Object.fromEntries(names.map((name) => [name, preset(name) ?? null]));
process.stdout.write(JSON.stringify({ imported, answers, presets, lacking: modules.filter((name) => lacks(name)) }));
