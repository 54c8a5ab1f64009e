// Contrast of every text in an SVG with what lies under its middle (axe does not look at SVG).
// All shapes are made to answer elementsFromPoint, so that opacity and order count.
const luminance = (color) => {
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = color.map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = (color) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = "#0000"; // remains if the color is "none"
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
};
const over = (top, under) => under.map((c, n) => top[3] * top[n] + (1 - top[3]) * c);
const paint = (node) => {
  const style = getComputedStyle(node);
  const drawn = node instanceof SVGElement && !(node instanceof SVGSVGElement);
  const [r, g, b, a] = rgba(drawn ? style.fill : style.backgroundColor);
  let opacity = drawn ? Number(style.fillOpacity) : 1;
  for (let e = node; e instanceof Element; e = e.parentNode) opacity *= Number(getComputedStyle(e).opacity);
  return [r, g, b, a * opacity];
};

const [limit, most] = arguments;
const sheet = new CSSStyleSheet();
sheet.replaceSync("* { pointer-events: auto !important } text, text * { pointer-events: none !important }");
document.adoptedStyleSheets.push(sheet);
const poor = [];
const texts = [...document.querySelectorAll("svg :is(text, tspan)")].filter(
  (text) => !text.children.length && text.textContent.trim() && text.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }),
);
for (const text of texts.filter((_, n) => n % Math.ceil(texts.length / most) === 0)) {
  text.scrollIntoView({ block: "center", inline: "center" });
  const box = text.getBoundingClientRect();
  if (!box.width) continue;
  let ground = rgba(getComputedStyle(document.body).backgroundColor).slice(0, 3);
  const under = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  for (const node of under.reverse()) ground = over(paint(node), ground);
  const [dark, light] = [over(paint(text), ground), ground].map(luminance).sort((a, b) => a - b);
  const ratio = (light + 0.05) / (dark + 0.05);
  if (ratio < limit) poor.push([text.textContent.slice(0, 40), Number(ratio.toFixed(2)), text.outerHTML.slice(0, 120)]);
}
document.adoptedStyleSheets.pop();
scrollTo(0, 0);
return poor;
