// Describes JSON Schemas in words for the API reference: a type in one line, and the members of objects as rows.

import { make } from "./dom.js";

const MANY = 12; // a longer list of values is folded

/** Return what *schema* allows, as text and elements. */
export function schemaType(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    const own = schema.$ref.includes("/$defs/"); // its members are shown at its place of use
    return [own ? name : make("a", { href: `#schema-${name}` }, name)];
  }
  if (schema.enum) return values(schema.enum);
  if ("const" in schema) return [make("code", {}, JSON.stringify(schema.const))];
  if (schema.anyOf) return schema.anyOf.flatMap((one, index) => [index ? " or " : "", ...schemaType(one)]);
  const kinds = [schema.type ?? "anything"].flat();
  const array = kinds.includes("array") && schema.items ? ["array of ", ...schemaType(schema.items)] : null;
  return [...(array ?? [kinds.join(" or ")]), bounds(schema)].filter((part) => part !== "");
}

function values(all) {
  const listed = all.flatMap((value, index) => [index ? " | " : "", make("code", {}, JSON.stringify(value))]);
  return all.length > MANY ? [make("details", {}, make("summary", {}, `one of ${all.length}`), listed)] : listed;
}

function bounds({ format, pattern, minimum, maximum, maxLength, maxItems, default: otherwise }) {
  const said = [
    format,
    pattern && `like ${pattern}`,
    minimum !== undefined && (maximum === undefined ? `at least ${minimum}` : `${minimum} to ${maximum}`),
    maxLength && `up to ${maxLength} characters`,
    maxItems && `up to ${maxItems}`,
    otherwise !== undefined && `default ${JSON.stringify(otherwise)}`,
  ].filter(Boolean);
  return said.length ? `, ${said.join(", ")}` : "";
}

/** Return the members of an object schema, nested ones with dotted names. *own* are its own definitions. */
export function members(schema, prefix = "", own = schema.$defs ?? {}) {
  const meant = (part) => own[part?.$ref?.split("/$defs/")[1]] ?? part;
  return Object.entries(schema.properties ?? {}).flatMap(([name, member]) => {
    const path = prefix + name;
    const required = schema.required?.includes(name);
    const row = { path, required, type: schemaType(member), description: member.description };
    const inside = [member, ...(member.anyOf ?? [])].flatMap((part) => members(meant(part), `${path}.`, own));
    return [row, ...inside, ...members(meant(member.items) ?? {}, `${path}[].`, own)];
  });
}
