// node handles.mjs NODE_MODULES JSON: which results of the tasks extension are not of its own schemas, as JSON.
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, given] = process.argv.slice(2);
const place = join(modules, "@modelcontextprotocol", "ext-tasks", "dist", "core", "v2", "index.js");
const schemas = await import(pathToFileURL(place));
const wrong = Object.entries(JSON.parse(given)).flatMap(([schema, results]) =>
  results.flatMap((result) => schemas[schema].safeParse(result).error?.issues ?? []),
);
console.log(JSON.stringify(wrong));
