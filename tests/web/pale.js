// Finds every visible text and placeholder with less contrast than WCAG 2.2 requires (1.4.3, AA).
const remembered = (work, known = new Map()) => (what) => known.get(what) ?? known.set(what, work(what)).get(what);
const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const rgba = remembered((text) => {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = text;
  context.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
});
const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
const behind = remembered((element) => {
  const own = rgba(getComputedStyle(element).backgroundColor);
  if (own[3] === 1) return own;
  const below = element.parentElement ? behind(element.parentElement) : rgba("Canvas");
  return over(own, below);
});
const light = ([r, g, b]) => {
  const [R, G, B] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * R + 0.7152 * G + 0.0722 * B;
};
const found = [];
const check = (element, what, style = getComputedStyle(element)) => {
  const ground = behind(element);
  const [a, b] = [light(over(rgba(style.color), ground)), light(ground)];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${what}`);
};
for (const element of document.querySelectorAll("body *")) {
  if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || element.disabled) continue;
  const own = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
  if (own.length) check(element, own[0].data.trim().slice(0, 30));
  if (element.placeholder) check(element, element.placeholder, getComputedStyle(element, "::placeholder"));
}
return found;
