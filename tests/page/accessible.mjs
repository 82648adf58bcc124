// Checks the built page with axe: node accessible.mjs SITE PLAYWRIGHT CHROMIUM AXE. Prints a line for each rule that a
// question breaks at some width, light or dark, and each control that is smaller than 24 pixels.
import { readFileSync } from "node:fs";
import { answered, launch, serve } from "./site.mjs";

const [, , site, playwright, executablePath, axe] = process.argv;
const source = readFileSync(axe, "utf-8");
const QUESTIONS = {
  fit: "?command=fit&model=qwen3-8b&gpu=h100&context=8192",
  "fit that does not fit": "?command=fit&model=llama2-70b&gpu=h100&context=4096",
  "fit on all GPUs": "?command=fit&model=gpt2&gpu=all",
  kv: "?command=kv&model=gemma3-27b&context=8192,16384",
  compare: "?command=compare&model=llama2-70b",
  "compare models": "?command=compare&model=llama2-70b&model=gpt2&model=qwen3-8b",
  plan: "?command=plan&model=llama3.1-8b&gpu=h100,l4&users=20&prompt=4K",
  train: "?command=train&model=llama3.1-8b&gpu=h100",
  "an error": "?command=fit&model=qwen3-8b&gpu=h1000",
  "another command": "?command=sweep&model=qwen3-8b",
};
const WIDTHS = [360, 768, 1280];
/** The least height and width of a control, unless it is in a sentence. */
const LEAST = 24;

const { server, home } = await serve(site);
const browser = await launch(playwright, executablePath);
const context = await browser.newContext({ serviceWorkers: "block" });
const page = await context.newPage();
const wrong = [];

/** Returns the controls that are smaller than a finger needs. */
const small = (least) => page.evaluate((least) => {
  const shown = [...document.querySelectorAll("button:not(.link), input:not([type=file]), select, summary, nav a, #links a")].filter((each) => each.checkVisibility());
  return shown.filter((each) => Math.min(each.offsetWidth, each.offsetHeight) < least).map((each) => each.outerHTML.slice(0, 80));
}, least);

for (const [name, question] of Object.entries(QUESTIONS)) {
  await page.goto(home + question);
  await answered(page);
  await page.evaluate(source);
  await page.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      wrong.push(...violations.map(({ id, nodes }) => `${name}, ${width} px, ${colorScheme}: ${id}: ${nodes[0].html.slice(0, 120)}`));
    }
    if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) wrong.push(`${name}, ${width} px: the page scrolls sideways`);
    wrong.push(...(await small(LEAST)).map((each) => `${name}, ${width} px: smaller than ${LEAST} px: ${each}`));
  }
}
await browser.close();
server.close();
server.closeAllConnections();
process.stdout.write(JSON.stringify(wrong));
