import assert from "node:assert/strict";
import test from "node:test";
import { colourOf, mixed, rgbOf } from "../src/logic/colours";
import { MOST_CHOSEN } from "../src/logic/url_state";

const BACKGROUNDS = { light: "#ffffff", dark: "#1f2125" };
const places = Array.from({ length: MOST_CHOSEN }, (_, place) => place);
const linear = (part: number): number => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);

function luminance(colour: string): number {
  const [r, g, b] = rgbOf(colour).map(linear) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** A place in OKLab, where distances are those that the eye sees. */
function lab(colour: string): number[] {
  const [r, g, b] = rgbOf(colour).map(linear) as [number, number, number];
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

test("each of fifty runs has a colour that is seen on the page", () => {
  for (const [theme, background] of Object.entries(BACKGROUNDS)) {
    for (const place of places) {
      const colour = colourOf(place, theme === "dark");
      assert.match(colour, /^#[0-9a-f]{6}$/);
      const [a, b] = [luminance(colour), luminance(background)].sort((x, y) => y - x) as [number, number];
      assert.ok((a + 0.05) / (b + 0.05) >= 3, `${theme} ${place}: ${colour}`);
    }
  }
});

test("no two of the fifty colours are alike", () => {
  for (const dark of [false, true]) {
    for (const a of places) {
      for (const b of places.slice(0, a)) {
        const away = Math.hypot(...lab(colourOf(a, dark)).map((x, i) => x - (lab(colourOf(b, dark))[i] as number)));
        assert.ok(away > 0.06, `${colourOf(a, dark)} and ${colourOf(b, dark)}: ${away}`);
      }
    }
  }
});

test("a colour is mixed with the background", () => {
  assert.deepEqual([mixed("#204060", "#ffffff", 0), mixed("#204060", "#000000", 0.5)], ["#204060", "#102030"]);
});
