/** Taking a chart away: its points as CSV, its picture as PNG. */
import type { Axis } from "../logic/axis";
import type { Cell } from "../logic/csv";
import { fileName, toCsv } from "../logic/csv";
import type { Shown } from "../logic/layers";
import type { View } from "../logic/view";
import { fitText } from "./canvas";
import type { Box } from "./chart_lines";
import { iconButton } from "./element";
import { paintRuler, RULER_PX } from "./ruler";
import { download } from "./table";
import type { Theme } from "./theme";

/** A chart as it is on the screen. */
export interface Figure {
  /** What the file is named after, and what stands above the chart. */
  name: string;
  tag: string;
  axis: Axis;
  view: View;
  box: Box;
  theme: Theme;
  /** Draw grid and lines. */
  paint(c: CanvasRenderingContext2D, box: Box): void;
  /** The runs, each with its colour where there are several. */
  curves: readonly { run: string; colour: string | null; shown: readonly Shown[]; thinned: boolean }[];
}

const TITLE_PX = 28;
const LEGEND_PX = 18;
const LEGEND_WIDTH_PX = 260;
const MARGIN_PX = 10;
/** Dots of a CSS pixel. */
const SHARP = 2;

export function chartButtons(tag: string, figure: () => Figure | null): HTMLElement[] {
  const button = (kind: string, title: string, save: (figure: Figure) => void): HTMLElement => {
    const press = (): void => {
      const found = figure();
      if (found) save(found);
    };
    const made = iconButton(kind, `Download ${tag} as ${kind}`, title, press);
    made.classList.add("download");
    return made;
  };
  return [
    button("CSV", "The points in sight, as they are drawn; all there are: tb-supervisor export", saveCsv),
    button("PNG", "The chart as it is, as a picture", savePng),
  ];
}

const CSV_HEAD = ["run", "tag", "step", "wall_time", "running_secs", "value", "smoothed", "kept"];

function* points({ tag, axis, view, curves }: Figure): Generator<Cell[]> {
  for (const { run, shown } of curves) {
    for (const { lines, lo, hi } of shown) {
      for (const line of lines) {
        // The joint of what was kept and what was not is in both.
        const before = lines[lines.indexOf(line) - 1];
        const first = line.abandoned && before?.segment === line.segment ? 1 : 0;
        for (let i = first; i < line.xs.length; i++) {
          const x = line.xs[i] as number;
          if (!(x >= lo && x <= hi && x >= view.lo && x <= view.hi)) continue;
          const running = axis.kind === "relative" ? x : null;
          const smoothed = line.shown === line.raw ? null : line.shown[i];
          yield [run, tag, line.step[i], line.wall[i], running, line.raw[i], smoothed, !line.abandoned];
        }
      }
    }
  }
}

const nameOf = ({ name, tag }: Figure, what: string, kind: string): string => fileName(`${name} ${tag}`, what, kind);

function saveCsv(figure: Figure): void {
  const what = figure.curves.some((curve) => curve.thinned) ? "thinned" : "points";
  download(nameOf(figure, what, "csv"), toCsv(CSV_HEAD, points(figure)));
}

function savePng(figure: Figure): void {
  const { width, height } = sizeOf(figure);
  const canvas = document.createElement("canvas");
  canvas.width = width * SHARP;
  canvas.height = height * SHARP;
  const c = canvas.getContext("2d") as CanvasRenderingContext2D;
  c.scale(SHARP, SHARP);
  paintFigure(c, figure);
  canvas.toBlob((blob) => {
    if (blob) download(nameOf(figure, "chart", "png"), blob, blob.type);
  });
}

const legendColumns = ({ box }: Figure): number => Math.max(1, Math.floor((box.left + box.width) / LEGEND_WIDTH_PX));

function sizeOf(figure: Figure): { width: number; height: number } {
  const { box, curves } = figure;
  const named = curves.filter(({ colour }) => colour !== null).length;
  const legend = Math.ceil(named / legendColumns(figure)) * LEGEND_PX;
  return {
    width: Math.ceil(box.left + box.width + MARGIN_PX),
    height: Math.ceil(TITLE_PX + box.height + RULER_PX + legend + MARGIN_PX),
  };
}

function paintFigure(c: CanvasRenderingContext2D, figure: Figure): void {
  const { name, tag, axis, view, theme, box, curves } = figure;
  const { width, height } = sizeOf(figure);
  c.fillStyle = theme.background;
  c.fillRect(0, 0, width, height);
  c.font = theme.font;
  c.textBaseline = "middle";
  c.fillStyle = theme.text;
  c.fillText(curves[0]?.colour === null ? `${name}: ${tag}` : tag, box.left, TITLE_PX / 2);
  const at = { ...box, top: TITLE_PX };
  figure.paint(c, at);
  const below = TITLE_PX + box.height;
  paintRuler(c, axis, view, box.left, box.width, theme, below, false);
  const perRow = legendColumns(figure);
  c.font = theme.font;
  c.textBaseline = "middle";
  curves.forEach(({ run, colour }, i) => {
    if (colour === null) return;
    const x = MARGIN_PX + (i % perRow) * LEGEND_WIDTH_PX;
    const y = below + RULER_PX + (Math.floor(i / perRow) + 0.5) * LEGEND_PX;
    c.fillStyle = colour;
    c.fillRect(x, y - 5, 10, 10);
    c.fillStyle = theme.text;
    c.fillText(fitText(c, run, LEGEND_WIDTH_PX - 24), x + 16, y);
  });
}
