// Packs files into a ZIP archive, without compression.

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  return rest;
});

/** Return the archive of *files*, each {name, bytes}, as a Blob. Names that occur twice get a number. */
export function zip(files) {
  const [parts, entries] = [[], []];
  const taken = new Set();
  let at = 0;
  for (const { name, bytes } of files) {
    const encoded = new TextEncoder().encode(unused(name, taken));
    const crc = crc32(bytes);
    const shared = [20, 0x800, 0, 0, 0x21, [crc], [bytes.length], [bytes.length], encoded.length, 0]; // 1980-01-01, UTF-8
    const head = fields([[0x04034b50], ...shared]);
    entries.push(fields([[0x02014b50], 20, ...shared, 0, 0, 0, [0], [at]]), encoded);
    parts.push(head, encoded, bytes);
    at += head.length + encoded.length + bytes.length;
  }
  const listed = entries.reduce((sum, { length }) => sum + length, 0);
  const end = fields([[0x06054b50], 0, 0, files.length, files.length, [listed], [at], 0]);
  return new Blob([...parts, ...entries, end], { type: "application/zip" });
}

/** Let the browser save *blob* as *name*. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it after the click
}

function unused(name, taken) {
  const [, stem, extension] = /^(.*?)(\.[^.]*)?$/s.exec(name);
  let free = name;
  for (let number = 2; taken.has(free.toLowerCase()); number += 1) free = `${stem} (${number})${extension ?? ""}`;
  taken.add(free.toLowerCase());
  return free;
}

/** Pack numbers, least byte first: each in two bytes, in four where it is in brackets. */
function fields(numbers) {
  const sized = numbers.map((number) => (Array.isArray(number) ? [number[0], 4] : [number, 2]));
  return Uint8Array.from(sized.flatMap(([value, size]) => Array.from({ length: size }, (_, at) => (value >>> (8 * at)) & 255)));
}

function crc32(bytes) {
  let rest = 0xffffffff;
  for (const byte of bytes) rest = (rest >>> 8) ^ TABLE[(rest ^ byte) & 255];
  return (rest ^ 0xffffffff) >>> 0;
}
