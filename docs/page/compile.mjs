// Compiles a zip of Python files with Pyodide's Python: node compile.mjs PYODIDE IN.zip OUT.zip [REGEX of names to drop].
// Compiled modules load three times as fast. Docstrings are left out.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , folder, source, target, drop = "(?!)"] = process.argv;
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
const python = await loadPyodide();
python.FS.writeFile("/in.zip", new Uint8Array(readFileSync(source)));
python.globals.set("drop", drop);
python.runPython(`
import re
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc

with zipfile.ZipFile("/in.zip") as given, zipfile.ZipFile("/out.zip", "w") as compiled:
    for name in sorted(given.namelist()):
        if name.endswith("/") or re.match(drop, name):
            continue
        content = given.read(name)
        if name.endswith(".py"):
            code = compile(content, name, "exec", dont_inherit=True, optimize=2)
            name, content = name + "c", _code_to_hash_pyc(code, bytes(8), False)
        compiled.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
`);
writeFileSync(target, python.FS.readFile("/out.zip"));
