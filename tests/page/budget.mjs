// Measures the built page: node budget.mjs SITE PLAYWRIGHT CHROMIUM. Prints milliseconds from nothing to the first answer
// (the best of three), of an answer while typing (the median of twenty), and of a fixed loop beside each of them.
import { answered, launch, serve } from "./site.mjs";

const [, , site, playwright, executablePath] = process.argv;
const QUESTION = "?command=fit&model=llama3.1-8b&gpu=h100-80gb&context=8192";
const { server, home } = await serve(site);
const browser = await launch(playwright, executablePath);
const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Returns the milliseconds of a fixed loop in the browser, as a measure of this machine now. */
const calibrate = (page) => page.evaluate(() => {
  const start = performance.now();
  let state = 1;
  const seen = new Map();
  for (let i = 0; i < 2_000_000; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    seen.set(state & 0xffff, i);
  }
  return performance.now() - start;
});

/** Asks in a browser that has nothing in its cache. Returns the page, which has answered. */
async function cold() {
  const context = await browser.newContext({ serviceWorkers: "block" });
  const page = await context.newPage();
  await page.addInitScript(() => addEventListener("DOMContentLoaded", () =>
    new MutationObserver(() => (globalThis.changed = performance.now())).observe(document.querySelector("#headline"), { childList: true })));
  await page.goto(home + QUESTION);
  await answered(page);
  return page;
}

const first = [];
const beside = [];
let page;
for (let i = 0; i < 3; i++) {
  await page?.context().close();
  page = await cold();
  first.push(await page.evaluate(() => globalThis.changed));
  beside.push(await calibrate(page));
}
const typing = [];
const besideTyping = [];
for (let i = 0; i < 20; i++) {
  await page.focus("#context");
  typing.push(await page.evaluate(async (text) => {
    const field = document.querySelector("#context");
    field.value = text;
    const start = performance.now();
    globalThis.changed = 0;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    while (!globalThis.changed) await new Promise((resolve) => setTimeout(resolve, 1));
    return globalThis.changed - start;
  }, `${1000 + i}`));
  await answered(page);
  besideTyping.push(await calibrate(page));
}
await browser.close();
server.close();
server.closeAllConnections();
process.stdout.write(JSON.stringify({ first: Math.min(...first), loop: Math.min(...beside), typing: median(typing), typing_loop: median(besideTyping) }));
