// Builds the tab into a directory: node build.mjs [--out DIR]. The entry is index.js; the rest has names that hold a hash.

import { createHash } from "node:crypto";
import { cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build, transform } from "esbuild";
import { minify } from "terser";

const here = path.dirname(fileURLToPath(import.meta.url));
const at = process.argv.indexOf("--out");
const out = path.resolve(at > 0 ? process.argv[at + 1] : path.join(here, "..", "tb_plugin", "static"));

/** Styles are strings in the program, which needs no request for them. */
export const styles = {
  name: "styles",
  setup(plugin) {
    plugin.onLoad({ filter: /\.css$/ }, async ({ path: file }) => {
      const { code } = await transform(await readFile(file, "utf8"), { loader: "css", minify: true, charset: "utf8" });
      return { contents: code.trim(), loader: "text" };
    });
  },
};

const fresh = await mkdtemp(path.join(tmpdir(), "supervisor-tab-"));
const options = {
  absWorkingDir: here,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  write: false,
  outdir: fresh,
  plugins: [styles],
  logLevel: "warning",
};
const worker = await bundle({ entryPoints: ["src/worker.ts"] }, "worker");
const define = { WORKER: JSON.stringify(`./${worker.file}`) };
const { file, metafile } = await bundle({ stdin: { contents: await modules(), resolveDir: here }, define }, "tab");
// The entry only hands on: its name stays the same, so it is never cached, and all else may be for ever.
await writeFile(path.join(fresh, "index.js"), `export { render } from "./${file}";\n`);
const packages = await bundled(metafile);
await writeFile(path.join(fresh, "LICENSES.txt"), await licences(packages));
const listed = packages.map(({ name, version, license }) => ({ name, version, license }));
await writeFile(path.join(fresh, "packages.json"), `${JSON.stringify(listed)}\n`);
await rm(out, { recursive: true, force: true });
await cp(fresh, out, { recursive: true });
await rm(fresh, { recursive: true, force: true });

let bytes = 0;
for (const name of await readdir(out)) {
  if (name.endsWith(".js")) bytes += gzipSync(await readFile(path.join(out, name)), { level: 9 }).length;
}
console.log(`frontend: ${(bytes / 1000).toFixed(1)} kB gzipped in ${path.relative(process.cwd(), out) || "."}`);

/** What exports the tab, and has its modules in an order in which they are 1 % smaller gzipped: the smallest first. */
async function modules() {
  const names = [];
  for (const folder of ["logic", "net", "view"]) {
    const files = (await readdir(path.join(here, "src", folder))).map((name) => `./src/${folder}/${name}`);
    const sized = files.map(async (name) => ({ name, size: (await stat(path.join(here, name))).size }));
    names.push(...(await Promise.all(sized)).sort((a, b) => a.size - b.size || (a.name < b.name ? -1 : 1)));
  }
  return `${names.map(({ name }) => `import "${name}";`).join("\n")}\nexport * from "./src/index";`;
}

/** Build one file under a name that holds a hash of its content. */
async function bundle(entry, name) {
  const { metafile, outputFiles } = await build({ ...options, ...entry });
  // What esbuild has made small becomes smaller by 3 %: functions that are called once are put where they are called.
  // esbuild has put constants on one side of each comparison, where they stay.
  const { code } = await minify(outputFiles[0].text, {
    module: true,
    ecma: 2022,
    compress: { passes: 3, lhs_constants: false, pure_getters: true },
  });
  const hash = createHash("sha256").update(code).digest("hex").slice(0, 8).toUpperCase();
  const file = `${name}-${hash}.js`;
  await writeFile(path.join(fresh, file), code);
  return { file, metafile };
}

/** The packages whose code is in what was built. */
async function bundled({ inputs }) {
  const names = new Set();
  for (const file of Object.keys(inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file);
    if (found) names.add(found[1]);
  }
  return Promise.all(
    [...names].sort().map(async (name) => {
      const folder = path.join(here, "node_modules", name);
      const { version, license } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
      return { name, version, license, folder };
    }),
  );
}

/** Their licences, in full. */
async function licences(packages) {
  const others = packages.length ? "and from these packages" : "alone";
  const parts = [`The tab is built from its own sources (Apache-2.0, see LICENSE) ${others}.\n`];
  for (const { name, version, license, folder } of packages) {
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} comes without its licence: it cannot be shipped`);
    parts.push(`${name} ${version}, ${license}\n\n${await readFile(path.join(folder, file), "utf8")}`);
  }
  return parts.join(`\n${"-".repeat(80)}\n\n`);
}
