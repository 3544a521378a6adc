// The page behind an edit link: whoever has it may correct the words of one job, and see nothing else.

import { find } from "./dom.js";
import { Editor } from "./editor.js";
import { Player } from "./player.js";
import { Said, guarded } from "./problems.js";

const job = location.pathname.split("/").at(-1);
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const player = new Player(find("#playing"));

find("#file").addEventListener("change", ({ target }) => target.files.length && player.load(target.files[0]));
addEventListener("hashchange", () => location.reload()); // a link with another token is another permission
guarded(find("#problem"), async () => {
  if (!token) throw new Said("This link is incomplete: the part after # is missing. Copy all of it.");
  const shared = `../v1/jobs/${job}`, query = `?token=${encodeURIComponent(token)}`;
  const words = await fetch(`${shared}/words${query}`);
  if (words.ok && (await words.json()).audio) player.load(`${shared}/audio${query}`);
  await new Editor(find("#editor"), { job, token, player }).show();
})();
