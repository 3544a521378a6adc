// Packs files into a ZIP archive, without compression, and takes them out of one.

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

/** Return the files of the archive *blob* as {name, bytes}, in order. */
export async function unzip(blob) {
  const view = new DataView(await blob.arrayBuffer());
  let end = view.byteLength - 22;
  while (view.getUint32(end, true) !== 0x06054b50) end -= 1;
  const files = [];
  for (let left = view.getUint16(end + 8, true), at = view.getUint32(end + 16, true); left > 0; left -= 1) {
    const number = (offset) => view.getUint16(at + offset, true);
    const name = new TextDecoder().decode(new Uint8Array(view.buffer, at + 46, number(28)));
    const head = view.getUint32(at + 42, true);
    const start = head + 30 + view.getUint16(head + 26, true) + view.getUint16(head + 28, true);
    const packed = blob.slice(start, start + view.getUint32(at + 20, true));
    const plain = number(10) ? packed.stream().pipeThrough(new DecompressionStream("deflate-raw")) : packed.stream();
    files.push({ name, bytes: new Uint8Array(await new Response(plain).arrayBuffer()) });
    at += 46 + number(28) + number(30) + number(32);
  }
  return files;
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
