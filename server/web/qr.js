// Draws a text as a QR code (ISO/IEC 18004): bytes, error correction L, the smallest of the versions 1 to 20, mask 0.

const CHECKS = [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28]; // bytes per block, by version
const BLOCKS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8];
const QUIET = 4; // modules around the code

/** Return the rows of the code of *text* as arrays of booleans, true for dark. Throws RangeError above 858 bytes. */
export function qrRows(text) {
  const bytes = new TextEncoder().encode(text);
  const version = BLOCKS.findIndex((_, at) => bytes.length + (at < 9 ? 2 : 3) <= dataBytes(at + 1)) + 1;
  if (!version) throw new RangeError("The text is too long for a code.");
  const size = 17 + 4 * version;
  const rows = Array.from({ length: size }, () => Array(size).fill(null)); // null: not a pattern
  patterns(rows, version);
  let bit = 0;
  const stream = interleaved(packed(bytes, version), version);
  for (const [y, x] of path(size)) {
    if (rows[y][x] !== null) continue;
    const dark = bit < stream.length * 8 && (stream[bit >> 3] >> (7 - (bit & 7))) & 1;
    rows[y][x] = Boolean(dark) !== ((x + y) % 2 === 0);
    bit += 1;
  }
  return rows;
}

/** Draw the code of *text* into the element *svg*. */
export function drawQr(svg, text) {
  const rows = qrRows(text);
  const size = rows.length + 2 * QUIET;
  svg.setAttribute("viewBox", `0 0 ${size} ${size}`);
  const dark = rows.flatMap((row, y) => row.map((on, x) => (on ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : "")));
  svg.querySelector("path").setAttribute("d", dark.join(""));
}

/** Return the number of modules for data and checks of a version, in bits. */
function room(version) {
  const marks = Math.floor(version / 7) + 2;
  const aligned = version > 1 ? (25 * marks - 10) * marks - 55 : 0;
  return (16 * version + 128) * version + 64 - aligned - (version > 6 ? 36 : 0);
}

const dataBytes = (version) => (room(version) >> 3) - CHECKS[version - 1] * BLOCKS[version - 1];

/** Return the data: the mode, the length, the bytes, and padding. */
function packed(bytes, version) {
  const nibbles = [4, ...(version > 9 ? [bytes.length >> 12, bytes.length >> 8] : []), bytes.length >> 4, bytes.length];
  const all = [...nibbles, ...[...bytes].flatMap((byte) => [byte >> 4, byte]), 0].map((nibble) => nibble & 15);
  const data = [];
  for (let at = 0; at < all.length; at += 2) data.push((all[at] << 4) | (all[at + 1] ?? 0));
  for (let pad = 0xec; data.length < dataBytes(version); pad ^= 0xec ^ 0x11) data.push(pad);
  return data.slice(0, dataBytes(version));
}

/** Return the data in blocks with their checks, byte by byte of all blocks in turn. */
function interleaved(data, version) {
  const [count, checks] = [BLOCKS[version - 1], CHECKS[version - 1]];
  const whole = room(version) >> 3;
  const short = Math.floor(whole / count) - checks;
  const blocks = [];
  for (let at = 0, number = 0; number < count; number += 1) {
    const end = at + short + (number >= count - (whole % count) ? 1 : 0);
    blocks.push(data.slice(at, end));
    at = end;
  }
  const column = (rows, at) => rows.flatMap((row) => (at < row.length ? [row[at]] : []));
  const across = (rows, length) => Array.from({ length }, (_, at) => column(rows, at)).flat();
  const divisor = generator(checks);
  return [...across(blocks, short + 1), ...across(blocks.map((block) => remainder(block, divisor)), checks)];
}

/** Multiply in the field of 256 elements of the standard. */
function times(one, other) {
  let product = 0;
  for (let bit = 7; bit >= 0; bit -= 1) {
    product = (product << 1) ^ ((product >> 7) * 0x11d);
    product ^= ((other >> bit) & 1) * one;
  }
  return product;
}

/** Return the polynomial with the roots 2^0 to 2^(degree - 1), without its first coefficient. */
function generator(degree) {
  const found = [...Array(degree - 1).fill(0), 1];
  for (let root = 1, step = 0; step < degree; step += 1, root = times(root, 2)) {
    for (let at = 0; at < degree; at += 1) found[at] = times(found[at], root) ^ (found[at + 1] ?? 0);
  }
  return found;
}

function remainder(data, divisor) {
  const left = divisor.map(() => 0);
  for (const byte of data) {
    const factor = byte ^ left.shift();
    left.push(0);
    divisor.forEach((one, at) => { left[at] ^= times(one, factor); });
  }
  return left;
}

/** Set the modules that are the same for every text: finders, timing, alignment, format and version. */
function patterns(rows, version) {
  const size = rows.length;
  const square = (cx, cy, reach, dark) => {
    for (let y = Math.max(0, cy - reach); y <= Math.min(size - 1, cy + reach); y += 1) {
      for (let x = Math.max(0, cx - reach); x <= Math.min(size - 1, cx + reach); x += 1) {
        rows[y][x] = dark(Math.max(Math.abs(x - cx), Math.abs(y - cy)));
      }
    }
  };
  for (let at = 0; at < size; at += 1) rows[6][at] = rows[at][6] = at % 2 === 0;
  for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) square(x, y, 4, (far) => far !== 2 && far !== 4);
  const places = alignments(version, size);
  const last = places.length - 1;
  places.forEach((x, i) => places.forEach((y, j) => {
    if (!((i === 0 && j === 0) || (i === 0 && j === last) || (i === last && j === 0))) square(x, y, 2, (far) => far !== 1);
  }));
  const format = checked(0b01000, 10, 0x537) ^ 0x5412; // error correction L, mask 0
  for (let at = 0; at < 15; at += 1) {
    const dark = Boolean((format >> at) & 1);
    rows[at < 6 ? at : at < 8 ? at + 1 : size - 15 + at][8] = dark;
    rows[8][at < 8 ? size - 1 - at : at < 9 ? 7 : 14 - at] = dark;
  }
  rows[size - 8][8] = true;
  if (version < 7) return;
  const number = checked(version, 12, 0x1f25);
  for (let at = 0; at < 18; at += 1) {
    const [far, near] = [size - 11 + (at % 3), Math.floor(at / 3)];
    rows[near][far] = rows[far][near] = Boolean((number >> at) & 1);
  }
}

function alignments(version, size) {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const step = Math.floor((version * 8 + count * 3 + 5) / (count * 4 - 4)) * 2;
  return [6, ...Array.from({ length: count - 1 }, (_, at) => size - 7 - at * step).reverse()];
}

/** Return *value* with a remainder of so many bits behind it. */
function checked(value, bits, divisor) {
  let left = value;
  for (let at = 0; at < bits; at += 1) left = (left << 1) ^ ((left >> (bits - 1)) * divisor);
  return (value << bits) | left;
}

/** Yield the places of the data: pairs of columns from the right, up and down in turn. */
function* path(size) {
  for (let right = size - 1, up = true; right > 0; right -= 2, up = !up) {
    if (right === 6) right = 5;
    for (let at = 0; at < size; at += 1) {
      for (const x of [right, right - 1]) yield [up ? size - 1 - at : at, x];
    }
  }
}
