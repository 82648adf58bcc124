// Uses the built page in a browser: node browser.mjs SITE PLAYWRIGHT CHROMIUM GGUF. Prints {name of a check: what was wrong, or ""}.
import { extname } from "node:path";
import { PLAIN_HTTP, TYPES, answered as hasAnswered, launch, serve } from "./site.mjs";

const [, , site, playwright, executablePath, gguf] = process.argv;
const { server, home } = await serve(site);
const browser = await launch(playwright, executablePath);
const context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
const page = await context.newPage();
page.setDefaultTimeout(15000);
const results = {};
const messages = [];
const foreign = [];
page.on("console", (message) => messages.push(`${message.type()}: ${message.text()}`));
page.on("pageerror", (error) => messages.push(error.message));
page.on("dialog", (dialog) => messages.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
context.on("request", (request) => request.url().startsWith(home) || foreign.push(request.url()));

const answered = () => hasAnswered(page);
const text = (selector) => page.locator(selector).first().textContent();
const headline = () => text("#headline");
const settle = async () => {
  await page.waitForTimeout(30);
  await answered();
};
const expect = (value, wanted) => {
  const holds = wanted instanceof RegExp ? wanted.test(value) : value === wanted;
  if (!holds) throw new Error(`${JSON.stringify(value)} and not ${wanted}`);
};
async function check(name, body) {
  try {
    await body();
    results[name] = "";
  } catch (error) {
    results[name] = String(error.message).split("\n")[0];
  }
}

await check("a link is a question", async () => {
  await page.goto(`${home}?command=fit&model=qwen3-8b&gpu=h100&context=8192`);
  await answered();
  const estimate = /^FITS: (\d+ to \d+) concurrent requests\. 1 request of 8,192 tokens/; // its figures are other tests'
  expect(await headline(), estimate);
  expect(await text("#tables td"), estimate.exec(await headline())[1]);
});

await check("a change is in the answer, in the address and in the command line", async () => {
  await page.fill("#context", "16K");
  await page.press("#context", "Tab");
  await settle();
  expect(await headline(), /^FITS: .*1 request of 16,384 tokens/);
  expect(new URL(page.url()).searchParams.get("context"), "16K");
  expect(await text(".line pre"), "attncalc fit qwen3-8b --gpu h100 --context 16K");
});

await check("back and forward", async () => {
  await page.goBack();
  await settle();
  expect(await headline(), /of 8,192 tokens/);
  expect(await page.inputValue("#context"), "8192");
  await page.goForward();
  await settle();
  expect(await headline(), /of 16,384 tokens/);
});

await check("the bar has the words of the command", async () => {
  expect(await text("#bar li"), /^weights [\d.]+ GiB$/);
  expect(await page.locator("#bar li").nth(1).textContent(), /^runtime [\d.]+ to [\d.]+ GiB$/);
  expect(await page.locator("#bar li").nth(2).textContent(), /^[\d.]+ to [\d.]+ GiB for the KV cache$/);
  expect(await text("#bar figcaption"), /^vLLM takes [\d.]+ of the GPU's [\d.]+ GiB \(Share of the GPU's memory 0\.\d+\)$/);
});

await check("a figure unfolds to its formula", async () => {
  await page.click("#figures > summary");
  await page.click("#figures details summary");
  await page.waitForFunction(() => document.querySelector("#figures details pre").textContent.includes("="));
});

await check("the command line is copied", async () => {
  await page.click(".line button");
  expect(await page.evaluate(() => navigator.clipboard.readText()), /^attncalc fit qwen3-8b/);
});

await check("an error is beside its field, and the answer to another question is gone", async () => {
  await page.fill("#gpu", "h1000");
  await settle();
  expect(await text("#error-gpu"), /^Error: .*h1000.*Tip: .*The list of this field/);
  expect(await page.getAttribute("#gpu", "aria-invalid"), "true");
  expect(await page.locator("#verdict").isVisible(), false);
  expect(await page.locator("#details").isVisible(), false);
  await page.fill("#gpu", "h100");
  await settle();
  expect(await page.locator(".error").count(), 0);
});

await check("a GPU has the name that nvidia-smi prints", async () => {
  await page.fill("#gpu", "NVIDIA A100-SXM4-80GB");
  await settle();
  expect(await text("#facts"), /A100 80GB SXM/);
});

await check("what is typed is announced after a pause, once", async () => {
  await page.waitForTimeout(1500); // what was typed before
  await page.evaluate(() => {
    globalThis.heard = [];
    new MutationObserver(() => heard.push(document.querySelector("#said").textContent)).observe(document.querySelector("#said"), { childList: true });
  });
  await page.fill("#model", "");
  await page.focus("#model");
  await page.keyboard.type("llama3.1-8b", { delay: 250 }); // each letter is answered
  await settle();
  await page.waitForTimeout(1500);
  const heard = await page.evaluate(() => globalThis.heard);
  expect(heard.length, 1);
  expect(heard[0], /^FITS: /);
  expect(await page.locator("[role=alert]:visible").count(), 0);
});

await check("an error is announced", async () => {
  await page.fill("#model", "lama");
  await page.press("#model", "Tab");
  await settle();
  await page.waitForTimeout(200);
  expect(await text("#said"), /^Error: no preset named 'lama'.* Tip: /);
  await page.fill("#model", "qwen3-8b");
  await settle();
});

await check("of several models the wrong one has the error", async () => {
  const before = page.url();
  await page.goto(`${home}?command=compare&model=llama2-70b&model=lama`);
  await answered();
  expect(await page.locator("[aria-invalid]").getAttribute("id"), "model-1");
  expect(await text("#none"), "No answer: see the error in Model 2.");
  await page.goto(before);
  await answered();
});

await check("the skip link leads to the answer, also to an error", async () => {
  const before = page.url();
  await page.goto(`${home}?command=fit&model=lama`);
  await answered();
  await page.focus(".skip");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement.id), "answer");
  await page.goto(before);
  await answered();
});

await check("a screen reader finds a name for each thing", async () => {
  const client = await context.newCDPSession(page);
  const { nodes } = await client.send("Accessibility.getFullAXTree");
  const named = ["table", "textbox", "combobox", "checkbox", "button", "link", "image", "progressbar", "form", "region", "navigation", "heading"];
  const shown = nodes.filter((node) => !node.ignored && named.includes(node.role?.value));
  const nameless = shown.filter((node) => !node.name?.value && !["form"].includes(node.role.value));
  expect(nameless.map((node) => node.role.value).join(), "");
  if (!shown.some((node) => node.role.value === "heading" && node.name.value.startsWith("FITS"))) throw new Error("no verdict");
  for (const label of ["Model", "GPU", "Context, in tokens"]) {
    const input = shown.find((node) => /textbox|combobox/i.test(node.role.value) && node.name.value === label);
    if (!input.description?.value) throw new Error(`${label} has no description`);
  }
});

await check("on paper there is the answer without the form", async () => {
  await page.emulateMedia({ media: "print" });
  expect(await page.locator("form").isVisible(), false);
  expect(await page.locator("#headline").isVisible(), true);
  await page.emulateMedia({ media: "screen", reducedMotion: "reduce" });
  expect(await page.locator(".piece").first().evaluate((each) => getComputedStyle(each).transitionDuration), "0s");
  await page.emulateMedia({ reducedMotion: "no-preference" });
});

await check("plan and train have a curve", async () => {
  await page.goto(`${home}?command=plan&model=llama3.1-8b&gpu=h100&users=20&prompt=4K&output-len=1K`);
  await answered();
  expect(await headline(), /^1 x H100/);
  expect(await text("#curve figcaption"), "GPUs, by users");
  expect(await page.locator(".line pre").nth(1).textContent(), /^vllm serve /);
  await page.click("nav a:has-text('Train')");
  await page.fill("#context", "4096");
  await settle();
  expect(await headline(), /^DOES NOT FIT/);
  expect(await text("#curve figcaption"), /\(GiB\), by context$/);
  await page.click("#changes button:has-text('LoRA')");
  await settle();
  expect(await headline(), /^FITS/);
});

await check("without a GPU, fit shows what is needed, and without a model what fits", async () => {
  await page.goto(`${home}?command=fit&model=qwen3-8b`);
  await answered();
  expect(await headline(), /^NEEDS [\d.]+ to [\d.]+ GiB/);
  expect(await text("#curve figcaption"), /^KV cache/);
  await page.goto(`${home}?command=fit&gpu=rtx-4090`);
  await answered();
  expect(await headline(), /^FITS: up to .*, of the built-in models/);
  await page.goto(`${home}?command=train&gpu=rtx-4090`);
  await answered();
  expect(await headline(), /^FITS: up to/);
});

await check("a built-in model has the name and the address of its repository", async () => {
  for (const name of ["Qwen/Qwen3-8B", "https://huggingface.co/meta-llama/Llama-3.1-8B"]) {
    await page.goto(`${home}?command=kv&model=${name}&context=8192`);
    await answered();
    expect(await headline(), /^KV cache 1\.\d\d GiB/);
  }
  if (foreign.length) throw new Error(`asked ${foreign[0]}`);
});

await check("a change that makes it fit applies itself", async () => {
  await page.goto(`${home}?command=fit&model=llama2-70b&gpu=h100&context=4096`);
  await answered();
  expect(await headline(), /^DOES NOT FIT/);
  await page.evaluate(() => document.querySelector("#headline").addEventListener("focus", (event) => (globalThis.read = event.target.textContent)));
  await page.click("#changes button");
  await settle();
  expect(await headline(), /^FITS/);
  expect(page.url(), /weights-dtype=/);
});

await check("a change keeps the place of the keyboard", async () => {
  expect(await page.evaluate(() => document.activeElement.id), "headline");
  expect(await page.evaluate(() => globalThis.read), /^FITS/); // and not the verdict before the change
});

await check("another question keeps the model", async () => {
  await page.click("nav a:has-text('KV cache')");
  await settle();
  expect(await headline(), /^KV cache 1.25 GiB/);
});

const CONFIG = { model_type: "llama", architectures: ["LlamaForCausalLM"], _name_or_path: "<script>alert(1)</script>", hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 128256, max_position_embeddings: 8192, torch_dtype: "bfloat16" };
const give = (files) => page.setInputFiles("#file", files);

await check("a dropped config.json", async () => {
  await page.evaluate((config) => {
    const dropped = new DataTransfer();
    dropped.items.add(new File([config], "config.json"));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
  }, JSON.stringify(CONFIG));
  await page.waitForFunction(() => document.querySelector("#model").value === "config.json");
  await settle();
  expect(await headline(), /^KV cache 512 MiB/);
});

await check("a pasted config.json, whose title has markup", async () => {
  await page.focus("#model");
  await page.evaluate((config) => {
    const data = new DataTransfer();
    data.setData("text", config);
    document.querySelector("#model").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
  }, JSON.stringify({ ...CONFIG, num_key_value_heads: 32 }));
  await page.waitForFunction(() => document.querySelector("#headline").textContent.startsWith("KV cache 2"));
  expect(await page.locator("main script").count(), 0);
});

await check("a pasted config.json has the name of its model, or says that it is yours", async () => {
  await give([{ name: "config.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify({ ...CONFIG, _name_or_path: undefined })) }]);
  await page.waitForFunction(() => document.querySelector("#facts").textContent.startsWith("your config.json, "));
  await give([{ name: "config.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify({ ...CONFIG, _name_or_path: "an-org/Its-Name-8B" })) }]);
  await page.waitForFunction(() => document.querySelector("#facts").textContent.includes("Its-Name-8B"));
});

await check("a dropped YAML file", async () => {
  await give([{ name: "mine.yaml", mimeType: "", buffer: Buffer.from("title: Mine\nd_model: 64\nn_layers: 2\nnorm: rmsnorm\nn_heads: 4\nmlp: gated\nd_ff: 128\n") }]);
  await page.waitForFunction(() => document.querySelector("#facts").textContent.startsWith("Mine, "));
  expect(await page.inputValue("#model"), "mine.yaml");
});

await check("a YAML file that is no model is an error in a sentence", async () => {
  await give([{ name: "compose.yaml", mimeType: "", buffer: Buffer.from("services:\n  a: 2026-11-29\n") }]);
  await page.waitForSelector(".error");
  expect(await text(".error"), /^Error: compose\.yaml is no model file(?!.*attncalc presets)/);
});

await check("a file is not in a link: after a reload it has to be dropped again", async () => {
  await page.reload();
  await page.waitForSelector(".error");
  expect(await text(".error"), /^Error: the file compose\.yaml is not in the link.* Tip: drop the file again/);
});

await check("nonsense is an error in a sentence", async () => {
  await give([{ name: "config.json", mimeType: "application/json", buffer: Buffer.from("{ not json") }]);
  await page.waitForSelector(".error");
  await page.waitForFunction(() => /config\.json/.test(document.querySelector(".error")?.textContent));
  expect(await text(".error"), /^Error: .*config\.json/);
});

await check("of a GGUF file of 39 GB only the header is read", async () => {
  await give([gguf]);
  await page.waitForFunction(() => document.querySelector("#model").value === "llama-70b.gguf");
  await settle();
  expect(await headline(), /^KV cache 1.25 GiB/); // 80 layers * 2 * 8 heads * 128 * 2 bytes * 4,096 tokens
});

await check("a file that is no GGUF is an error", async () => {
  await give([{ name: "broken.gguf", mimeType: "", buffer: Buffer.from("GGUF\u0003\0\0\0") }]);
  await page.waitForFunction(() => document.querySelector("#model").value === "broken.gguf");
  await settle();
  expect(await text(".error"), /^Error: broken\.gguf: (?!.*bug)/);
});

await check("a long pasted text is cut", async () => {
  await page.fill("#model", "");
  await page.focus("#model");
  await page.keyboard.insertText("nonsense <b>".repeat(1000));
  await settle();
  expect(await text(".error"), /^Error: /);
  expect(await page.locator("main b:not(#figures b)").count(), 0);
  expect((await page.inputValue("#model")).length, 2000);
});

await check("a link of a newer version", async () => {
  await page.goto(`${home}?command=kv&model=gpt2&from-the-future=1`);
  await page.waitForSelector(".error");
  expect(await text(".error"), /^attncalc \S+ has no option “from-the-future” in KV cache\..*reload the page/);
  await page.click(".error a");
  await answered();
  expect(await headline(), /^KV cache/);
});

await check("a link has short names of options, and those of other tools", async () => {
  for (const name of ["c", "max-model-len", "max_model_len"]) {
    await page.goto(`${home}?command=kv&model=gpt2&${name}=512`);
    await answered();
    expect(await headline(), "KV cache 36 MiB"); // 12 layers * 2 * 12 heads * 64 * 4 bytes * 512 tokens
  }
});

await check("a link to a question of the terminal says so", async () => {
  await page.goto(`${home}?command=sweep&model=gpt2`);
  await page.waitForSelector(".error");
  expect(await text(".error"), /^This page does not have the question “sweep”: attncalc in a terminal has it\./);
  expect(await page.locator("#verdict").isVisible(), false);
  await page.click(".error a");
  await answered();
  expect(await headline(), /^NEEDS /);
});

await check("the search finds options by their words, names and help", async () => {
  const found = () => page.locator("#more .fields .field:visible label").allTextContents();
  await page.fill("#search", "share of gpu's memory");
  expect((await found()).join(), /^Share of the GPU's memory --gpu-memory-utilization,Share of the GPU's memory \(SGLang\)/);
  await page.fill("#search", "ctk");
  expect((await found()).length, 0);
  await page.fill("#search", "");
  if ((await found()).length < 5) throw new Error("the common options are gone");
  expect(await page.locator("#more details details[open]").count(), 0);
});

await check("an option in a sentence leads to its field", async () => {
  await page.goto(`${home}?command=fit&model=qwen3-8b&gpu=h100`);
  await answered();
  await page.click("#bar figcaption a");
  expect(await page.evaluate(() => document.activeElement.id), "gpu-memory-utilization");
});

await check("texts have no words of the command line", async () => {
  for (const query of ["?command=fit&model=qwen3-8b&gpu=h100&prompt=4K", "?command=fit&model=llama2-70b&gpu=h100", "?command=train&model=llama3.1-8b&gpu=h100", "?command=plan&model=gpt2", "?command=fit", "?command=kv&model=lama", "?command=fit&model=gpt2&engine=all", "?command=fit&gpu=h1000&model=gpt2", "?command=plan&model=llama3.1-8b&gpu=h100&users=20"]) {
    await page.goto(home + query);
    await answered();
    await page.evaluate(() => document.querySelectorAll("#more, #lines, code, #install, header, label").forEach((each) => each.remove()));
    expect(await page.evaluate(() => document.querySelector("main").innerText.match(/--[a-z][\w-]*|'fit |attncalc [a-z]+|attncalc\.[a-z]+|context=\d+/g)?.join() ?? ""), "");
  }
});

await check("on a phone the verdict is below model, GPU and context", async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  for (const question of ["fit&gpu=h100", "kv", "compare", "plan&gpu=h100&users=20", "train&gpu=h100"]) {
    await page.goto(`${home}?command=${question}&model=qwen3-8b`);
    await answered();
    const top = await page.locator("#headline").evaluate((each) => Math.round(each.getBoundingClientRect().top));
    if (top > 320) throw new Error(`${question}: ${top} pixels`);
    const order = await page.evaluate(() => [...document.querySelectorAll("#form, #verdict, #more, #details")].map((each) => each.id).join());
    expect(order, "form,verdict,more,details");
  }
});

await check("on a phone the verdict stays in sight while an option is typed", async () => {
  await page.goto(`${home}?command=fit&model=qwen3-8b&gpu=h100`);
  await answered();
  await page.click("#more summary");
  await page.fill("#weights-dtype", "fp8");
  await settle();
  await page.locator("#weights-dtype").evaluate((each) => each.scrollIntoView({ block: "end" }));
  const top = await page.locator("#headline").evaluate((each) => each.getBoundingClientRect().top);
  expect(Math.round(top), 0);
});

await check("a table that is wider than the phone fades out, and scrolls by keyboard", async () => {
  await page.goto(`${home}?command=compare&model=llama2-70b`);
  await answered();
  const place = page.locator("#tables .scroll");
  expect(await place.getAttribute("class"), "scroll fades");
  await place.focus();
  for (let i = 0; i < 20; i++) await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.querySelector("#tables .scroll").className === "scroll");
  await page.setViewportSize({ width: 1280, height: 720 });
});

await check("a line is copied on plain http", async () => {
  const plain = await page.context().newPage();
  await plain.goto(`${home.replace("127.0.0.1", PLAIN_HTTP)}?command=kv&model=gpt2`);
  await hasAnswered(plain);
  expect(await plain.evaluate(() => isSecureContext), false);
  await plain.click(".line button");
  await plain.waitForFunction(() => document.querySelector(".line button").textContent === "Copied");
  await plain.close();
  await page.bringToFront();
  expect(await page.evaluate(() => navigator.clipboard.readText()), "attncalc kv gpt2");
  foreign.length = 0;
});

await check("the hub is asked after a click only", async () => {
  await page.goto(`${home}?command=kv&model=gpt2`);
  await answered();
  await context.route("https://huggingface.co/**", (route) => {
    const { pathname } = new URL(route.request().url());
    const headers = { "Access-Control-Allow-Origin": "*" };
    if (pathname === "/api/models/an-org/a-model/revision/main") return route.fulfill({ headers, json: { sha: "0".repeat(40), siblings: [{ rfilename: "config.json" }] } });
    if (pathname.endsWith("/config.json")) return route.fulfill({ headers, json: CONFIG });
    return route.fulfill({ headers: { ...headers, "X-Error-Code": "RepoNotFound", "Access-Control-Expose-Headers": "X-Error-Code" }, status: 404, body: "" });
  });
  await page.fill("#model", "an-org/a-model");
  await settle();
  if (foreign.length) throw new Error(`asked ${foreign[0]}`);
  await page.click(".error button");
  await settle();
  expect(await headline(), /^KV cache 1.00 GiB/); // 32 layers * 2 * 8 heads * 128 * 2 bytes * 8,192 tokens
  if (!foreign.every((url) => url.startsWith("https://huggingface.co/"))) throw new Error(`asked ${foreign}`);
});

await check("a hub that cannot be reached", async () => {
  await context.route("https://huggingface.co/**/offline*/**", (route) => route.abort());
  await page.fill("#model", "an-org/offline");
  await settle();
  await page.click(".error button");
  await settle();
  expect(await text(".error"), /huggingface\.co cannot be reached from this page.*Tip: /);
  expect(await page.evaluate(() => document.activeElement.id), "model");
});

await check("a model that the hub does not have", async () => {
  await page.fill("#model", "an-org/another");
  await settle();
  await page.click(".error button");
  await settle();
  expect(await text(".error"), /no such model on https:\/\/huggingface\.co/);
  messages.splice(0, messages.length, ...messages.filter((message) => !/404|ERR_FAILED/.test(message))); // the browser's own
  await page.fill("#model", "gpt2");
  await settle();
});

await check("it works by keyboard alone", async () => {
  await page.focus("#context");
  await page.keyboard.type("1");
  await settle();
  await page.keyboard.press("Control+A");
  await page.keyboard.type("512");
  await page.keyboard.press("Tab");
  await settle();
  expect(await headline(), "KV cache 36 MiB");
  expect(await page.evaluate(() => document.activeElement.id), "batch");
});

await check("it works without a network after the first visit", async () => {
  await page.evaluate(() => navigator.serviceWorker.ready);
  await new Promise((resolve) => server.close(resolve) && server.closeAllConnections());
  await page.goto(`${home}?command=kv&model=llama2-70b&context=4096`);
  await answered();
  expect(await headline(), /^KV cache 1.25 GiB/);
});

await check("no request leaves the page's host unasked, and the console is silent", async () => {
  if (messages.length) throw new Error(messages[0]);
});

/** Opens the page with a file that is replaced by `body`, or missing, and expects what it says then. */
async function saysWithout(path, body, said) {
  const other = await browser.newContext({ serviceWorkers: "block" });
  await other.route(`**/${path}`, (route) => (body === undefined ? route.fulfill({ status: 404 }) : route.fulfill({ body, contentType: TYPES[extname(path)] })));
  const old = await other.newPage();
  await old.goto(home);
  await old.waitForFunction((pattern) => new RegExp(pattern).test(document.querySelector("#broken:not([hidden])")?.textContent), said, { timeout: 20000 });
  await other.close();
}

if (!server.listening) server.listen(new URL(home).port, "127.0.0.1");
const BROKEN = "^Python could not start: .+\\. Reload the page, update the browser, or run attncalc in a terminal\\.$";
await check("a package that is missing", () => saysWithout("attncalc.pack", undefined, BROKEN));
await check("a package that is damaged", () => saysWithout("attncalc.pack", "nonsense", BROKEN));
await check("WebAssembly that is missing", () => saysWithout("pyodide/pyodide.asm.wasm", undefined, BROKEN));
await check("a browser without modules in workers", () => saysWithout("worker.js", "importScripts(); export {}", BROKEN));
await check("a form that is missing", () => saysWithout("form.json", undefined, "^form\\.json is not there \\(404\\)\\. Reload the page"));
await check("a browser without JavaScript", () => saysWithout("page.js", "", "^This page needs JavaScript and a browser of 2023 or later\\. Update"));

await check("without WebAssembly a sentence says what to do", async () => {
  const old = await context.newPage();
  await old.addInitScript(() => delete globalThis.WebAssembly);
  await old.goto(home);
  await old.waitForFunction(() => document.querySelector("#broken").textContent.includes("WebAssembly"));
  expect(await old.locator("#broken").isVisible(), true);
});

await browser.close();
server.close();
server.closeAllConnections();
process.stdout.write(JSON.stringify(results));
