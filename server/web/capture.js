// Runs on the audio thread: collects the microphone's samples as pcm_s16le and posts each 0.1 s with its loudness.

class Capture extends AudioWorkletProcessor {
  #piece = new Int16Array(Math.round(sampleRate / 10));
  #filled = 0;
  #peak = 0;

  constructor() {
    super();
    this.port.onmessage = () => { // the microphone is being closed
      this.#post();
      this.port.postMessage(null);
    };
  }

  process([[samples]]) {
    for (const sample of samples ?? []) {
      this.#peak = Math.max(this.#peak, Math.abs(sample));
      this.#piece[this.#filled] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
      this.#filled += 1;
      if (this.#filled === this.#piece.length) this.#post();
    }
    return true;
  }

  #post() {
    const bytes = new Uint8Array(this.#piece.slice(0, this.#filled).buffer);
    if (bytes.length) this.port.postMessage({ bytes, peak: this.#peak }, [bytes.buffer]);
    this.#filled = 0;
    this.#peak = 0;
  }
}

registerProcessor("capture", Capture);
