// The built page in a browser, for tests.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { extname, join, normalize } from "node:path";
import { pathToFileURL } from "node:url";

export const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".json": "application/json", ".wasm": "application/wasm", ".svg": "image/svg+xml", ".zip": "application/zip" };
// As strict for the worker as index.html is for the page
const POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self' https://huggingface.co https://*.hf.co; worker-src 'self'";
/** A host that is not this machine's own name: what the page may do there is what plain http allows. */
export const PLAIN_HTTP = "plain.test";

/** Serves the folder of the page. Returns its server and its address. */
export async function serve(site) {
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url, "http://localhost").pathname).replace(/\/$/, "/index.html");
    try {
      const content = readFileSync(join(site, path));
      response.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "text/plain", "Content-Security-Policy": POLICY });
      response.end(content);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, home: `http://127.0.0.1:${server.address().port}/` };
}

export async function launch(playwright, executablePath) {
  const { chromium } = (await import(pathToFileURL(playwright))).default;
  const quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  return chromium.launch({ executablePath, args: [...quiet, `--host-resolver-rules=MAP ${PLAIN_HTTP} 127.0.0.1`] });
}

/** Waits until the page has answered. */
export const answered = (page) => page.waitForFunction(() => document.documentElement.dataset.state === "answered", undefined, { timeout: 60000 });
