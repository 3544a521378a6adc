// Audio that the server may ask for again. Bytes are numbered from the first that was ever recorded.

export class KeptAudio {
  #pieces = []; // Uint8Arrays, one behind the other
  #from = 0; // number of the first byte that is kept

  to = 0; // number of the next byte to come

  push(bytes) {
    this.#pieces.push(bytes);
    this.to += bytes.length;
  }

  /** Nobody will ask for what lies before byte *at*. */
  forget(at) {
    let gone = 0;
    while (gone < this.#pieces.length && this.#from + this.#pieces[gone].length <= at) {
      this.#from += this.#pieces[gone].length;
      gone += 1;
    }
    this.#pieces.splice(0, gone);
  }

  /** At most *most* bytes from number *at* on; none when there are no more. What was forgotten comes as silence. */
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
