// One WebSocket of the service, and a job's events over as many of them as it takes.

import { Gone, Problem, pause, socketAddress } from "./api.js";

const TERMINAL = new Set(["job.completed", "job.failed", "job.canceled"]);

export const terminal = (event) => TERMINAL.has(event.type);

/**
 * Opens a WebSocket and gives what it says to *hear*, parsed. *over* is called once, when it has ended: with the
 * Problem that the server told, or with null. Ended by leave() it calls nobody.
 */
export class Conversation {
  #socket;
  #problem = null;
  #over;
  #timer;

  constructor(address, { hear, over, opened = () => {}, silence = null }) {
    this.#over = over;
    this.#socket = new WebSocket(address);
    this.#socket.onopen = opened;
    this.#socket.onmessage = ({ data }) => {
      this.#wind(silence);
      const event = JSON.parse(data);
      if (event.type === "error") this.#problem = new Problem(event.error);
      else hear(event);
    };
    this.#socket.onclose = () => this.#end();
    this.#wind(silence);
  }

  /** Bytes that were given to send() and have not left this machine. */
  get waiting() {
    return this.#socket.bufferedAmount;
  }

  send(data) {
    this.#socket.send(data);
  }

  leave() {
    this.#over = () => {};
    this.#socket.close();
    clearTimeout(this.#timer);
  }

  /** Without a word for *silence* ms the connection counts as broken, whatever the network believes. */
  #wind(silence) {
    clearTimeout(this.#timer);
    if (silence !== null) this.#timer = setTimeout(() => this.#end(), silence);
  }

  #end() {
    const over = this.#over;
    this.leave();
    over(this.#problem);
  }
}

/**
 * Every event of a job behind number *after*, once and in order, to *hear*; returns the terminal one. Connections may
 * break meanwhile: *standing* is told "connected" and "reconnecting". Raises Problem; Gone after *most* ms without
 * a connection.
 */
export async function follow(jobId, { token, after = 0, hear, standing = () => {}, most = Infinity }) {
  let last = after;
  let heardAt = performance.now();
  for (let tries = 0; ; tries += 1) {
    const { problem, ending } = await new Promise((resolve) => {
      const socket = new Conversation(
        socketAddress(`/v1/jobs/${jobId}/stream`, { ...(token && { token }), last_event_id: last }),
        {
          hear(event) {
            tries = 0;
            heardAt = performance.now();
            last = Math.max(last, event.seq ?? 0);
            if (terminal(event)) {
              socket.leave();
              resolve({ ending: event });
            } else hear(event);
          },
          opened: () => standing("connected"),
          over: (said) => resolve({ problem: said }),
        },
      );
    });
    if (ending) return ending;
    if (problem && !problem.passing) throw problem;
    if (performance.now() - heardAt > most) throw problem ?? new Gone();
    standing("reconnecting");
    await pause(tries);
  }
}
