// A live session: sends audio to the server, receives words, and reconnects and resends after failures.
//
// Audio is kept until the server says that it will not need it again. On every connection the server says how many bytes
// it has. After a crash these are fewer than it had received.
// If the server has ended a session because it was away for too long, a new session continues with the missing audio.

import { Gone, ask, eventsToken, newIdempotencyKey, pause, persistently, socketAddress } from "./api.js";
import { KeptAudio } from "./kept.js";
import { Conversation, follow, terminal } from "./socket.js";

const MESSAGE_BYTES = 32 * 1024;
const MAX_QUEUED = 8 * MESSAGE_BYTES; // in the browser's own buffer; the rest stays in KeptAudio
const SILENT_MS = 30_000; // the server acknowledges every second, so after this silence the connection is lost
const KEPT_BEHIND_S = 60; // most of the received audio that is kept, as in long silences
const MAX_UNSENT_S = 600; // audio that waits for a connection; with more the session is given up
const ENDED_MEANWHILE = new Set(["ingest_finished", "ingest_idle"]);

export class LiveSession {
  jobs = []; // ids of its jobs, the newest last
  #order;
  #tell;
  #kept = new KeptAudio();
  #address;
  #origin = 0; // where the newest job's audio begins; like all positions, in bytes of the whole recording
  #sent = 0;
  #safe = 0; // every word up to here is final
  #seq = 0;
  #conversation = null;
  #started = false; // the server has said where this connection continues
  #ended = false; // no more audio will come
  #toldEnd = false;
  #over = false;
  #tries = 0;
  #request = null; // the newest POST /v1/live, which may be repeated
  #changing = false; // the newest job ends so that another one with a new order follows

  /**
   * *order* is the body of POST /v1/live. *tell* gets the server's events and these: {type: "state", state} with
   * connecting, listening, reconnecting or finishing; {type: "continued", job_id}; at last {type: "over", error}.
   */
  constructor(order, tell) {
    this.#order = order;
    this.#tell = tell;
  }

  get jobId() {
    return this.jobs.at(-1);
  }

  /** Start the session. Throws Problem or Gone if none can be made. */
  async start() {
    this.#state("connecting");
    await this.#begin(0);
  }

  push(bytes) {
    if (this.#over) return;
    this.#kept.push(bytes);
    if (this.#kept.to - this.#sent > this.#bytes(MAX_UNSENT_S)) this.#finish(new Gone());
    else this.#pump();
  }

  /** Keep the session open while no audio comes. Call it every few seconds. It also decides the words so far. */
  keepAlive() {
    if (this.#started && !this.#toldEnd) this.#conversation.send('{"type":"finalize"}');
  }

  /** Go on in another job with a new *order*, from the next sound on. */
  change(order) {
    this.#order = order;
    this.#changing = true;
    this.#pump();
  }

  /** End the recording. Audio that is not sent yet is still sent and transcribed. */
  end() {
    this.#ended = true;
    if (this.#started) this.#state("finishing");
    this.#pump();
  }

  // --- one job after the other -------------------------------------------------------------------------------------

  async #begin(origin) {
    const record = await ask("v1/live", { method: "POST", body: this.#order, headers: this.#idempotency(origin) });
    this.jobs.push(record.job_id);
    this.#address = record.live.ingest_ws;
    this.#origin = this.#sent = this.#safe = origin;
    this.#seq = 0;
    this.#changing = false;
    this.#connect();
  }

  /** Continue in a new job after the server has ended the newest one too early. */
  async #goOn() {
    const end = await persistently(() => this.#rest());
    const heard = end.data.live.received_bytes; // null after a crash: then only the end of the last word is known
    const from = Math.max(this.#safe, heard === null ? 0 : this.#origin + heard);
    if (end.type !== "job.completed" || (this.#ended && from >= this.#kept.to)) {
      this.#tell(end);
      this.#finish(null);
      return;
    }
    await persistently(() => this.#begin(from));
    this.#tell({ type: "continued", job_id: this.jobId });
  }

  /** Take the remaining events of the newest job, up to its terminal event. */
  async #rest() {
    const { token } = await eventsToken(this.jobId);
    return follow(this.jobId, { token, after: this.#seq, hear: (event) => this.#hearEvent(event), most: 60_000 });
  }

  // --- one connection after the other ------------------------------------------------------------------------------

  #connect() {
    this.#started = this.#toldEnd = false;
    this.#conversation = new Conversation(socketAddress(this.#address, { last_event_id: this.#seq }), {
      hear: (event) => this.#hear(event),
      over: (problem) => this.#disconnected(problem),
      silence: SILENT_MS,
    });
  }

  #hear(event) {
    if (event.type === "session.started") {
      this.#started = true;
      this.#tries = 0;
      this.#sent = this.#origin + event.received_bytes;
      this.#state(this.#ended ? "finishing" : "listening");
      this.#pump();
    } else if (event.type === "ack") {
      const settled = Math.max(event.settled_bytes, event.received_bytes - this.#bytes(KEPT_BEHIND_S));
      this.#kept.forget(this.#origin + settled);
      this.#pump();
    } else {
      this.#hearEvent(event);
      if (terminal(event)) this.#ending(event);
    }
  }

  /** The newest job has ended: go on in another one if the order has changed. */
  async #ending(event) {
    if (!this.#changing || event.type !== "job.completed") return this.#finish(null);
    this.#started = false;
    this.#conversation.leave();
    try {
      await persistently(() => this.#begin(this.#sent));
      this.#tell({ type: "continued", job_id: this.jobId });
    } catch (error) {
      this.#finish(error);
    }
  }

  #hearEvent(event) {
    this.#seq = Math.max(this.#seq, event.seq ?? 0);
    if (event.type === "word") this.#safe = this.#origin + this.#bytes(event.end);
    this.#tell(event);
  }

  async #disconnected(problem) {
    this.#started = false;
    try {
      if (problem && ENDED_MEANWHILE.has(problem.code)) {
        this.#state("reconnecting");
        await this.#goOn();
        return;
      }
      if (problem && !problem.passing) throw problem;
    } catch (error) {
      this.#finish(error);
      return;
    }
    this.#state("reconnecting");
    await pause(this.#tries);
    this.#tries += 1;
    if (!this.#over) this.#connect();
  }

  /** Send the audio that is there, as fast as the network takes it. */
  #pump() {
    while (this.#started && !this.#toldEnd && this.#conversation.waiting < MAX_QUEUED) {
      const piece = this.#kept.read(this.#sent, MESSAGE_BYTES);
      if (!piece.length) break;
      this.#conversation.send(piece);
      this.#sent += piece.length;
    }
    const all = this.#sent >= this.#kept.to;
    if (this.#started && (this.#ended || this.#changing) && !this.#toldEnd && all) {
      this.#toldEnd = true;
      this.#conversation.send('{"type":"close"}');
    }
  }

  #finish(error) {
    if (this.#over) return;
    this.#over = true;
    this.#started = false;
    this.#conversation?.leave();
    this.#tell({ type: "over", error });
  }

  #state(state) {
    this.#tell({ type: "state", state });
  }

  /** Return the bytes of so many seconds, in whole samples. */
  #bytes(seconds) {
    return 2 * Math.floor(seconds * this.#order.sample_rate);
  }

  /** Make a key with which repeats of one request make only one session. */
  #idempotency(origin) {
    if (this.#request?.origin !== origin) this.#request = { origin, headers: newIdempotencyKey() };
    return this.#request.headers;
  }
}
