/** The colours of compared runs: 50 that can be told apart, each with a contrast of at least 3 to 1 on the page. */

/** Three digits a colour: the first ones are the furthest from each other, as the eye sees them. */
const LIGHT =
  "15cf000a0300d0f05080600798c96008880df4a631046405a5708f40aa01b0ad7310389547265886f00f030d06c6d95b57b603c7953653f067c4065060800b59b64b844a3f349f2d327e56";
const DARK =
  "7afff0d00080f0ff900d974ffcf379b6aa72bfd0f0f8f0a9f088a0d9ab1c0dfcc807ef65a7fad1a550c076b7f9e5c39c685caffba8b8fc0fe9c270fe6bcc96c4f98c0a0c77acfcb0f7aaf1";

/** The colour of a place in the palette, as `#rrggbb`. */
export const colourOf = (place: number, dark: boolean): string =>
  `#${(dark ? DARK : LIGHT).slice(3 * place, 3 * place + 3).replace(/./g, "$&$&")}`;

/** The same for an element, which follows the page's colours by itself. */
export const elementColour = (place: number): string =>
  `light-dark(${colourOf(place, false)}, ${colourOf(place, true)})`;

/** Red, green and blue from 0 to 255. */
export function rgbOf(colour: string): [number, number, number] {
  const bits = Number.parseInt(colour.slice(1), 16);
  return [bits >> 16, (bits >> 8) & 255, bits & 255];
}

/** A colour moved towards another by a share. */
export function mixed(colour: string, other: string, share: number): string {
  const to = rgbOf(other);
  const parts = rgbOf(colour).map((part, i) => Math.round(part + ((to[i] as number) - part) * share));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
