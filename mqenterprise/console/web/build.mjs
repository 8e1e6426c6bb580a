/** Builds the page: one start file, a file for each screen, one style sheet; names with digests, addresses relative. */

import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { build } from "esbuild";

if (!process.env.CONSOLE_TARGET) throw new Error("CONSOLE_TARGET names no folder: build with `make console`");
const TARGET = `${process.env.CONSOLE_TARGET}/`;

await rm(TARGET, { recursive: true, force: true });
await mkdir(TARGET, { recursive: true });

const { metafile } = await build({
  entryPoints: ["src/main.tsx"],
  outdir: `${TARGET}assets`,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  minify: true,
  metafile: true,
  legalComments: "none",
  define: { "process.env.NODE_ENV": '"production"' },
});

const start = Object.entries(metafile.outputs).find(([, output]) => output.entryPoint === "src/main.tsx");
const script = basename(start[0]);
const style = basename(start[1].cssBundle);
// What the start file needs is fetched beside it, not after it.
const needed = start[1].imports.filter((one) => one.kind === "import-statement").map((one) => basename(one.path));
const head = [
  `<link rel="stylesheet" href="./assets/${style}">`,
  ...needed.map((name) => `<link rel="modulepreload" href="./assets/${name}">`),
  `<script type="module" src="./assets/${script}"></script>`,
];
const page = await readFile("index.html", "utf8");
await writeFile(
  `${TARGET}index.html`,
  page.replace("    <!-- assets -->", head.map((line) => `    ${line}`).join("\n")),
);
await copyFile("icon.svg", `${TARGET}icon.svg`);
