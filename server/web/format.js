// Formats numbers, times and amounts for people.

/** 75.3 -> "1:15", 3675 -> "1:01:15" */
export function clock(seconds) {
  const whole = Math.floor(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** 800 ms -> "0.8 s" */
export const lag = (ms) => `${(Math.max(0, ms) / 1000).toFixed(1)} s`;

/** Shorten a decimal string of US dollars, but never to zero. */
export function dollars(text) {
  const value = Number(text);
  const style = value < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: value < 100 ? 2 : 0 };
  return `$${value.toLocaleString("en", style)}`;
}

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  const step = Math.min(3, Math.floor(Math.log2(count) / 10));
  const number = (count / 1024 ** step).toLocaleString("en", { maximumSignificantDigits: 3 });
  return `${number} ${["B", "KiB", "MiB", "GiB"][step]}`;
}

/** Show an RFC 3339 time in the reader's time zone. */
export const moment = (text) => new Date(text).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

/** Show only the day, as "Dec 1". */
export const day = (text) => new Date(text).toLocaleDateString([], { month: "short", day: "numeric" });

/** 1, "turn" -> "1 turn"; 1200, "turn" -> "1,200 turns" */
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** 90 -> "90 minutes", 120 -> "2 hours" */
export const inMinutes = (minutes) =>
  minutes < 60 || minutes % 60 ? counted(minutes, "minute") : counted(minutes / 60, "hour");

/** 36 -> "36 hours", 168 -> "7 days" */
export const inHours = (hours) => (hours < 24 || hours % 24 ? counted(hours, "hour") : counted(hours / 24, "day"));

/** "audio_seconds" -> "audio seconds" */
export const plain = (name) => name.replaceAll("_", " ");

const two = (number) => String(number).padStart(2, "0");
