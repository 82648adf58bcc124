// Answers questions with Python of the built page: node documents.mjs SITE < {"files": {path: text}, "questions": []}.
// Prints a list with the JSON of each answer, or its error.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const site = process.argv[2];
const { files, questions } = JSON.parse(readFileSync(0, "utf-8"));
const { loadPyodide } = await import(pathToFileURL(`${site}/pyodide/pyodide.mjs`));
const { unpack } = await import(pathToFileURL(`${site}/unpack.js`));
const python = await loadPyodide();
(await unpack(new Response(readFileSync(`${site}/attncalc.pack`))))(python.FS, "/lib/attncalc");
for (const [path, text] of Object.entries(files)) {
  python.FS.mkdirTree(path.replace(/\/[^/]*$/, ""));
  python.FS.writeFile(path, text);
}
const answered = python.runPython(`
import sys; sys.path.insert(0, "/lib/attncalc")
import hub; hub.install()
import answer
from attncalc.errors import AttncalcError

def answered(question):
    try:
        return answer.document(question)
    except AttncalcError as error:
        return str(error)

answered
`);
const imported = python.runPython(`sorted(name for name in sys.modules if name.split(".")[0] in ("typer", "rich", "yaml", "torch"))`).toJs();
process.stdout.write(JSON.stringify({ imported, answers: questions.map((question) => answered(JSON.stringify(question))) }));
