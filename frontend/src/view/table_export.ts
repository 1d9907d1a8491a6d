/** Taking a table away: as a CSV file, or copied as a spreadsheet pastes it. */
import type { Separator } from "../logic/csv";
import { copyButton } from "./copy";
import { h } from "./element";
import { download } from "./table";

/**
 * Two buttons. `name`: of the table, in words; `file`: of the file; `text`: the table, with this between its cells.
 */
export function exportButtons(name: string, file: string, text: (separator: Separator) => string): HTMLElement[] {
  return [
    copyButton(() => text("\t"), {
      "aria-label": `Copy ${name}`,
      title: "Copy the table: a spreadsheet pastes it as cells",
    }),
    h("button", { "aria-label": `Download ${name} as CSV`, onclick: () => download(file, text(",")) }, "CSV"),
  ];
}
