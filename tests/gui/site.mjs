// The documentation's site from a folder, without a network (see tests/interop/site.py):
//   node site.mjs target/site /usr/bin/chromium [FOLDER for pictures]
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const require = createRequire(new URL("../../ui/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const [folder, executablePath, shots] = process.argv.slice(2);
const site = pathToFileURL(`${resolve(folder)}/`).href;

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
try {
  const context = await browser.newContext({ offline: true, viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const elsewhere = [];
  page.on("request", (request) => !/^(file|data|blob):/.test(request.url()) && elsewhere.push(request.url()));
  await page.goto(`${site}index.html`);
  const picture = page.locator('img[src$="demo.svg"]');
  assert.ok(await picture.evaluate((image) => image.complete && image.naturalWidth > 0), "the picture is shown");
  if (shots) await page.screenshot({ path: `${shots}/site-home.png` });
  assert.notEqual(await page.title(), "Squall - Squall");
  const files = await page.locator('a[href*="schemas/"], a[href*="examples/"]').evaluateAll((links) => links.map((link) => link.href));
  assert.ok(files.length >= 4, `links to schemas and examples: ${files}`);
  for (const file of files) assert.ok(existsSync(fileURLToPath(file)), `${file} is in the site`);
  const box = page.getByRole("textbox", { name: "Search" });
  await box.click();
  await box.pressSequentially("reordering");
  const results = page.locator(".md-search-result__link");
  await results.first().waitFor();
  const found = await results.evaluateAll((links) => links.map((link) => link.href));
  assert.ok(found.length > 1 && found.every((href) => href.startsWith(site)), `${found}`);
  if (shots) await page.screenshot({ path: `${shots}/site-search.png` });
  for (const words of ["jitter", "packet loss"]) {
    await box.fill(words);
    await page.locator(".md-search-result__meta", { hasText: /matching/ }).waitFor();
    await page.waitForFunction(() => !document.querySelector(".md-search-result__link")?.href.includes("/adr/"), undefined, { timeout: 20_000 });
  }
  await box.fill("reordering");
  await results.first().click();
  await page.waitForURL((url) => url.href !== `${site}index.html`);

  await page.goto(`${site}guide/first-stream.html`);
  const code = await page.locator("pre > code").evaluateAll((blocks) =>
    blocks.map((block) => ({ kind: block.closest("[class*=language-]")?.className ?? "", colored: block.querySelectorAll("[class]").length > 0, cut: block.scrollWidth > block.clientWidth + 1 })),
  );
  const commands = code.filter(({ kind }) => /language-(sh|toml)/.test(kind));
  assert.ok(commands.length > 1, "the page has commands and profiles");
  assert.deepEqual(commands.filter(({ colored, cut }) => !colored || cut), [], "blocks without colors, or cut off");
  assert.deepEqual(code.filter(({ kind }) => !kind), [], "blocks without a language");
  if (shots) await page.screenshot({ path: `${shots}/site-page.png` });
  for (const name of ["tutorial.html", "reference/cli.html"]) {
    await page.goto(`${site}${name}`);
    const cut = await page.locator("pre > code").evaluateAll((blocks) => blocks.filter((block) => block.scrollWidth > block.clientWidth + 1).map((block) => block.textContent.split("\n").sort((a, b) => b.length - a.length)[0]));
    // Longer lines are those of files and of other programs.
    assert.deepEqual(cut.filter((line) => line.length <= 100), [], `${name}: output that is cut off`);
    if (shots) await page.screenshot({ path: `${shots}/site-${name.replace("/", "-")}.png` });
  }
  assert.deepEqual(elsewhere, [], "addresses outside of the folder");
  console.log(`ok      the site works from a folder: ${found.length} results, ${commands.length} blocks of code`);
} finally {
  await browser.close();
}
