// JSON Schemas in words: what a member may be, as one line, and an object's members, as rows.

import { make } from "./dom.js";

const MANY = 12; // values that are listed only on demand

/** What *schema* takes, as text and elements. */
export function schemaType(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    const own = schema.$ref.includes("/$defs/"); // its members are shown where it is used
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

/** The members of an object schema, those of objects inside it under dotted names; *own* are its own definitions. */
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
