// Keeps recorded audio that the server may need again. Bytes are numbered from the start of the recording.

export class KeptAudio {
  #pieces = []; // Uint8Arrays, in order
  #from = 0; // number of the first kept byte

  to = 0; // number of the next byte

  push(bytes) {
    this.#pieces.push(bytes);
    this.to += bytes.length;
  }

  /** Forget the bytes before number *at*. */
  forget(at) {
    let gone = 0;
    while (gone < this.#pieces.length && this.#from + this.#pieces[gone].length <= at) {
      this.#from += this.#pieces[gone].length;
      gone += 1;
    }
    this.#pieces.splice(0, gone);
  }

  /** Return at most *most* bytes from number *at* on, or none at the end. Forgotten bytes are returned as silence. */
  read(at, most) {
    if (at < this.#from) return new Uint8Array(Math.min(most, this.#from - at));
    let start = this.#from;
    for (const piece of this.#pieces) {
      if (at < start + piece.length) return piece.subarray(at - start, at - start + most);
      start += piece.length;
    }
    return new Uint8Array(0);
  }
}
