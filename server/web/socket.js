// Opens a WebSocket of the server, and follows the events of a job over as many WebSockets as needed.

import { Gone, Problem, pause, socketAddress } from "./api.js";

const TERMINAL = new Set(["job.completed", "job.failed", "job.canceled"]);

export const terminal = (event) => TERMINAL.has(event.type);

/**
 * Open a WebSocket and call *hear* with each parsed message. *over* is called once at its end, with the Problem that
 * the server sent or with null, but not after leave().
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

  /** The bytes that send() has taken and that are not sent yet. */
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

  /** Count the connection as broken after *silence* ms without a message, even if the network reports no error. */
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
 * Call *hear* with every event of a job after number *after*, once and in order; return the terminal event. Broken
 * connections are replaced: *standing* is called with "connected" and "reconnecting". Throws Problem, and Gone after
 * *most* ms without a connection.
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
