"""Tests of kept.js: bytes that the server asks for again are those that were recorded."""

STORY = """
const { KeptAudio } = await import("./web/kept.js");
let seed = 7;
const chance = (most) => (seed = (seed * 48271) % 2147483647) % most;
for (let life = 0; life < 60; life += 1) {
  const kept = new KeptAudio();
  const all = [];
  let forgotten = 0;
  for (let step = 0; step < 60; step += 1) {
    const bytes = Uint8Array.from({ length: 2 * chance(9) }, () => 1 + chance(255));
    kept.push(bytes);
    all.push(...bytes);
    if (kept.to !== all.length) return "to";
    if (chance(3) === 0) kept.forget((forgotten = Math.max(forgotten, chance(all.length + 1))));
    const at = chance(all.length + 1);
    const most = 1 + chance(40);
    const read = kept.read(at, most);
    if (read.length > most || (read.length === 0) !== (at === all.length)) return `length ${read.length} at ${at}`;
    const silent = at < forgotten && read.every((byte) => byte === 0);
    if (!silent && !read.every((byte, index) => byte === all[at + index])) return `bytes at ${at}`;
  }
  kept.forget(all.length);
  if (all.length && kept.read(0, 1)[0] !== 0) return "nothing was forgotten";
}
return "kept";
"""


def test_what_is_not_forgotten_is_read_as_it_was_recorded(page):
    page.open("#speak")
    assert page.script(f"return (async () => {{ {STORY} }})()") == "kept"
